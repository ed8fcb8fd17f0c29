// Contexts: their creation, and their destruction together with the memory and slots that belong to
// them.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "capture.h"
#include "context_numbers.h"
#include "doomed.h"
#include "driver.h"
#include "line.h"
#include "memory.h"
#include "observe.h"
#include "place.h"
#include "session.h"
#include "streams.h"
#include "use.h"

namespace tandem::shim::handlers {

// Roughly what a context takes of its device; only the driver knows the exact amount. Capped at the
// limit, against which a context does not count: a larger figure would look like a demand that can
// never be met.
inline uint64_t expected_context_bytes(CUdevice device) {
  size_t total = 0;
  if (g_driver.cuDeviceTotalMem_v2) g_driver.cuDeviceTotalMem_v2(&total, device);
  constexpr uint64_t kMost = uint64_t{640} << 20, kLeast = 1 << 20;
  return std::min(std::clamp<uint64_t>(total / 64, kLeast, kMost), memory::limit_bytes());
}

// A full device has no room for a context either. A job that may wait for memory waits for a
// context too, even if that is the first thing that the process does.
template <class Make>
CUresult make_context(CUdevice device, Make make) {
  const CUresult result = make();
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  if (g_session.load(std::memory_order_acquire) == SessionState::kFresh) start_session_on(device);
  return line::in_line(
      [&] {
        return line::Want{static_cast<uint32_t>(device), expected_context_bytes(device), false};
      },
      make);
}

// The device is the last argument of every version.
template <class Call, class... A>
CUresult create_context(CUcontext* out, A... rest) {
  const CUdevice device = std::get<sizeof...(A) - 1>(std::tuple<A...>(rest...));
  const CUresult result = make_context(device, [&] { return Call::real(out, rest...); });
  if (result == CUDA_SUCCESS && out) note_context(*out, device);
  return result;
}

template <class Call>
CUresult retain_primary(CUcontext* out, CUdevice device) {
  const CUresult result = make_context(device, [&] { return Call::real(out, device); });
  if (result == CUDA_SUCCESS) partition::note_retained(device);
  return result;
}

template <class Call>
CUresult destroy_context(CUcontext context) {
  const swap::Use use(swap::Needs::kTables);
  const uint32_t device = doomed::device_of(context);
  const uint64_t number = doomed::doom(context);
  const CUresult result = destroying_context(context, [&] { return Call::real(context); });
  doomed::finish(number, context, device, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS) {
    note_context_destroyed(reinterpret_cast<uint64_t>(context));
    forget_context_number(reinterpret_cast<uint64_t>(context));
    partition::forget_context(context);
  }
  return result;
}

// Always acts on the current context.
template <class Call>
CUresult attach_context(CUcontext* out, unsigned flags) {
  const CUresult result = Call::real(out, flags);
  if (result == CUDA_SUCCESS) doomed::note_attached();
  return result;
}

// Destroys the context unless it is attached more than once.
template <class Call>
CUresult detach_context(CUcontext context) {
  if (doomed::is_last_hold(context)) return destroy_context<Call>(context);
  const CUresult result = Call::real(context);
  if (result == CUDA_SUCCESS) doomed::note_detached(context);
  return result;
}

// A reset, or a release, which destroys the primary context only when it was the last one.
template <class Call>
CUresult reset_device(CUdevice device) {
  const swap::Use use(swap::Needs::kTables);
  const uint64_t number = doomed::doom_primary(device);
  const bool is_reset = contains(Call::kName, "Reset");
  const bool may_destroy = is_reset || partition::is_last_hold(device);
  partition::before_release(device, may_destroy, is_reset);
  const CUresult result =
      destroying_primary(device, may_destroy, [&] { return Call::real(device); });
  const bool is_gone = result == CUDA_SUCCESS && !primary_is_active(device);
  if (result == CUDA_SUCCESS) partition::after_release(device, is_gone);
  doomed::finish(number, nullptr, static_cast<uint32_t>(device), is_gone);
  return result;
}

}  // namespace tandem::shim::handlers
