#include "capture.h"

#include "channel.h"
#include "driver.h"
#include "faults.h"
#include "relaxed.h"
#include "slots.h"
#include "streams.h"
#include "thread_state.h"

namespace tandem::shim {

std::atomic<uint32_t> g_captures{0};

namespace {

constexpr uint64_t kNoOrigin = 0;
constexpr uint32_t kOrigins = 64;

// All relaxed: a thread asks about its own captures, and those of others are a hint.
struct Origin {
  std::atomic<uint64_t> stream;  // normalised
  std::atomic<uint32_t> thread;  // that began it
  std::atomic<uint64_t> context;
};
Origin g_origins[kOrigins];

void publish() {
  if (Channel* channel = g_channel.load(std::memory_order_acquire)) {
    channel->state->control.capturing.store(g_captures.load(std::memory_order_relaxed),
                                            std::memory_order_relaxed);
  }
}

// Ends a capture, or removes one that the driver no longer knows: the thread that takes the stream
// out decrements the count.
void end(Origin& origin, uint64_t stream) {
  if (!origin.stream.compare_exchange_strong(stream, kNoOrigin, std::memory_order_relaxed)) return;
  if (planted(Fault::kKeepCapturing)) return;
  g_captures.fetch_sub(1, std::memory_order_relaxed);
  publish();
}

}  // namespace

void note_capture_begun(uint64_t stream) {
  CUcontext context = nullptr;
  if (g_driver.cuCtxGetCurrent) g_driver.cuCtxGetCurrent(&context);
  for (Origin& origin : g_origins) {
    uint64_t none = kNoOrigin;
    if (!origin.stream.compare_exchange_strong(none, stream, std::memory_order_relaxed)) continue;
    origin.thread.store(thread_id(), std::memory_order_relaxed);
    origin.context.store(reinterpret_cast<uint64_t>(context), std::memory_order_relaxed);
    g_captures.fetch_add(1, std::memory_order_relaxed);
    publish();
    return;
  }
  // More captures than anyone has: here, captured work counts as submitted.
}

void note_capture_ended(uint64_t stream) {
  for (Origin& origin : g_origins) {
    if (origin.stream.load(std::memory_order_relaxed) != stream) continue;
    // On every other thread that handle means another stream.
    if (stream == kPerThreadStream && origin.thread.load(std::memory_order_relaxed) != thread_id())
      continue;
    end(origin, stream);
  }
}

void note_stream_destroyed(CUstream stream) {
  const auto handle = reinterpret_cast<uint64_t>(stream);
  if (any_capture() && !is_default_stream(handle)) note_capture_ended(handle);
}

void note_context_destroyed(uint64_t context) {
  if (!any_capture()) return;
  for (Origin& origin : g_origins) {
    if (origin.context.load(std::memory_order_relaxed) != context) continue;
    const uint64_t stream = origin.stream.load(std::memory_order_relaxed);
    if (stream != kNoOrigin) end(origin, stream);
  }
}

void forget_captures() {
  for (Origin& origin : g_origins) origin.stream.store(kNoOrigin, std::memory_order_relaxed);
  g_captures.store(0);
}

bool has_capture_of_this_thread() {
  const uint32_t thread = thread_id();
  for (const Origin& origin : g_origins) {
    if (origin.stream.load(std::memory_order_relaxed) != kNoOrigin &&
        origin.thread.load(std::memory_order_relaxed) == thread) {
      return true;
    }
  }
  return false;
}

bool is_capturing(CUstream stream) {
  if (!g_driver.cuStreamIsCapturing) return false;
  const RelaxedCapture relaxed;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const partition::Stream looked_at(stream, partition::How::kLook);
  const CUresult result = g_driver.cuStreamIsCapturing(looked_at.real(), &status);
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace tandem::shim
