// The three pages of an attachment in plain memory, a driver made of lambdas, and a channel on
// them.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "channel.h"
#include "driver.h"
#include "session.h"
#include "shm_layout.h"
#include "thread_state.h"

namespace pages {

using namespace tandem;  // only in tests: names of the code under test
using namespace tandem::shim;

// What the fake GPU and driver have seen.
struct Seen {
  std::atomic<int> markers{0}, event_records{0}, registrations{0};
  std::atomic<int> events{0}, destroyed_events{0};  // created so far, and destroyed of those
  std::atomic<bool> gpu_held{false};
  std::atomic<int> refuse_register{0};
};
inline Seen g_seen;

inline CUresult current(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(0x1000l);
  return CUDA_SUCCESS;
}
inline CUresult write_value(CUstream, CUdeviceptr address, cuuint64_t value, unsigned) {
  ++g_seen.markers;
  if (!g_seen.gpu_held) reinterpret_cast<std::atomic<uint64_t>*>(address)->store(value);
  return CUDA_SUCCESS;
}

inline void make_driver() {
  g_session = SessionState::kOff;  // or a handler's helper reads the next test's writes
  g_seen.markers = g_seen.event_records = g_seen.registrations = 0;
  g_seen.events = g_seen.destroyed_events = 0;
  g_seen.gpu_held = false;
  g_seen.refuse_register = 0;
  g_driver = Driver{};
  g_driver.cuCtxGetCurrent = current;
  g_driver.cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
  g_driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    return *value = 1, CUDA_SUCCESS;
  };
  g_driver.cuEventCreate = [](CUevent* event, unsigned) {
    static std::atomic<long> next{0x2000};
    ++g_seen.events;
    return *event = reinterpret_cast<CUevent>(++next), CUDA_SUCCESS;
  };
  g_driver.cuEventDestroy_v2 = [](CUevent) { return ++g_seen.destroyed_events, CUDA_SUCCESS; };
  g_driver.cuEventRecord = [](CUevent, CUstream) { return ++g_seen.event_records, CUDA_SUCCESS; };
  g_driver.cuEventQuery = [](CUevent) {
    return g_seen.gpu_held ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  g_driver.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
    return *ms = 0.02f, CUDA_SUCCESS;
  };
  g_driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    ++g_seen.registrations;
    return g_seen.refuse_register ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  };
  g_driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* address, void* host, unsigned) {
    return *address = reinterpret_cast<CUdeviceptr>(host), CUDA_SUCCESS;
  };
  g_driver.cuStreamWriteValue64_v2 = write_value;
  g_driver.cuStreamGetCtx = [](CUstream, CUcontext* context) { return current(context); };
  g_driver.cuStreamQuery = [](CUstream) {
    return g_seen.gpu_held ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  g_way = Way::kFast;
}

// Makes a new attachment, which is leaked, as a real one is.
inline Channel* make_channel() {
  if (g_clock.base_ns() == 0) g_clock.start_real();
  const auto map = [](size_t bytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  };
  auto* command = new (map(shm::kCommandBytes)) shm::CommandPage{};
  auto* state = static_cast<shm::StatePage*>(map(shm::kStateBytes));
  auto* presence = new (map(shm::kPresenceBytes)) shm::PresencePage{};
  auto* channel = new (map(sizeof(Channel))) Channel;
  channel->lay_out(command, state, presence, &g_clock);
  command->gate.flags = shm::kFlagTelemetry | shm::kFlagHonourPresence;
  command->heartbeat.tick_ns = g_clock.now_ns();
  command->heartbeat.stale_ns = 10'000'000'000;
  command->memory.limit_bytes = shm::kNoLimit;
  g_thread = ThreadState{};
  return channel;
}

inline shm::CommandPage& command_of(Channel* channel) {
  return const_cast<shm::CommandPage&>(*channel->command);
}

}  // namespace pages
