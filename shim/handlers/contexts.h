// Contexts: made, and destroyed with the memory and the slots that are theirs.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <tuple>

#include "capture.h"
#include "context_numbers.h"
#include "doomed.h"
#include "driver.h"
#include "observe.h"
#include "place.h"
#include "use.h"

namespace tandem::shim::handlers {

// The device is the last argument of every version.
template <class Call, class... A>
CUresult create_context(CUcontext* out, A... rest) {
  const CUresult result = Call::real(out, rest...);
  if (result == CUDA_SUCCESS && out)
    note_context(*out, std::get<sizeof...(A) - 1>(std::tuple<A...>(rest...)));
  return result;
}

template <class Call>
CUresult destroy_context(CUcontext context) {
  const swap::Use use;
  const uint32_t device = doomed::device_of(context);
  const uint64_t number = doomed::doom(context);
  const CUresult result = destroying_context(context, [&] { return Call::real(context); });
  doomed::finish(number, context, device, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS) {
    note_context_destroyed(reinterpret_cast<uint64_t>(context));
    forget_context_number(reinterpret_cast<uint64_t>(context));
  }
  return result;
}

// Always the current one.
template <class Call>
CUresult attach_context(CUcontext* out, unsigned flags) {
  const CUresult result = Call::real(out, flags);
  if (result == CUDA_SUCCESS) doomed::note_attached();
  return result;
}

// Destroys the context unless it was attached more often.
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
  const swap::Use use;
  const uint64_t number = doomed::doom_primary(device);
  const CUresult result = destroying_primary(device, [&] { return Call::real(device); });
  doomed::finish(number, nullptr, static_cast<uint32_t>(device),
                   result == CUDA_SUCCESS && !primary_is_active(device));
  return result;
}

}  // namespace tandem::shim::handlers
