// Implements softgpu_hooks.h: how the daemon and the shim take part in the device's clock.
#include "softgpu_hooks.h"

#include "api.h"

using namespace softgpu;

#define SOFTGPU_HOOK extern "C" __attribute__((visibility("default")))

namespace {

// Returns true if the device runs on the virtual clock; connects if this process has not yet.
bool on_virtual_clock() {
  Runtime& rt = runtime();
  return rt.start(0) == CUDA_SUCCESS && rt.is_virtual();
}

}  // namespace

SOFTGPU_HOOK uint64_t softgpu_now_ns() {
  // Not a driver call: a thread that only reads the clock does not take part in it.
  Runtime& rt = runtime();
  const Lock lock(rt.mutex);
  return rt.now_ns();
}

SOFTGPU_HOOK int softgpu_clock_is_virtual() { return on_virtual_clock(); }

SOFTGPU_HOOK void softgpu_wait_until_ns(uint64_t deadline_ns) {
  softgpu_wait_for_change(0, deadline_ns, 0);
}

SOFTGPU_HOOK int softgpu_wait_for_change(uint64_t step_ns, uint64_t deadline_ns, int only_looked) {
  Call call(Call::kClock);
  if (call.rt.now_ns() >= deadline_ns) return 1;
  if (!call.error)
    return call.rt.wait_for_change(call.lock, step_ns, deadline_ns, only_looked != 0);
  const timespec until{static_cast<time_t>(deadline_ns / 1'000'000'000),
                       static_cast<long>(deadline_ns % 1'000'000'000)};
  call.lock.unlock();
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
  return 1;
}

SOFTGPU_HOOK void softgpu_end_nap() { runtime().end_nap(); }

SOFTGPU_HOOK void softgpu_wait_begin() {
  Call call(Call::kClock);
  if (call.error || !call.rt.is_virtual()) return;
  this_thread().outside = true;
  call.rt.flush();
  call.rt.thread_ends();
}

SOFTGPU_HOOK void softgpu_wait_end() {
  // Being a driver call makes the thread take part again.
  const Call call(Call::kClock);
}

SOFTGPU_HOOK void softgpu_observe() { runtime().start(proto::kObserver); }
