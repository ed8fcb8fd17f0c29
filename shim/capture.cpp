#include "capture.h"

#include "channel.h"
#include "driver.h"
#include "relaxed.h"
#include "thread_state.h"

namespace tandem::shim {

std::atomic<uint32_t> g_captures{0};

namespace {

void publish() {
  if (Channel* channel = g_channel.load(std::memory_order_acquire)) {
    channel->state->control.capturing.store(g_captures.load(std::memory_order_relaxed),
                                            std::memory_order_relaxed);
  }
}

}  // namespace

void note_capture_begun() {
  ++g_thread.captures;
  g_captures.fetch_add(1, std::memory_order_relaxed);
  publish();
}

void note_capture_ended() {
  if (g_thread.captures) --g_thread.captures;
  uint32_t count = g_captures.load(std::memory_order_relaxed);
  while (count && !g_captures.compare_exchange_weak(count, count - 1, std::memory_order_relaxed)) {
  }
  publish();
}

bool still_captures() {
  if (!any_capture()) g_thread.captures = 0;
  return g_thread.captures != 0;
}

bool is_capturing(CUstream stream) {
  if (!g_driver.cuStreamIsCapturing) return false;
  const RelaxedCapture relaxed;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = g_driver.cuStreamIsCapturing(stream, &status);
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace tandem::shim
