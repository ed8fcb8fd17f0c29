// Captures, and the ends of streams and contexts.
#pragma once

#include <cuda.h>

#include <atomic>

#include "capture.h"
#include "driver.h"
#include "observe.h"

namespace tandem::shim::handlers {

template <class Call, class... A>
CUresult begin_capture(A... arguments) {
  const CUresult result = Call::real(arguments...);
  if (result == CUDA_SUCCESS) note_capture_begun();
  return result;
}
template <class Call, class... A>
CUresult end_capture(CUstream stream, A... rest) {
  const bool was_capturing = any_capture() && is_capturing(stream);
  const CUresult result = Call::real(stream, rest...);
  if (was_capturing && !is_capturing(stream)) note_capture_ended();
  return result;
}
template <class Call>
CUresult destroy_stream(CUstream stream) {
  retire_stream(stream);
  return Call::real(stream);
}
template <class Call>
CUresult destroy_context(CUcontext context) {
  return destroying_context(context, [&] { return Call::real(context); });
}
// The streams outlive the green context, detached; nothing may be put into them any more.
template <class Call>
CUresult destroy_green(CUgreenCtx green) {
  CUcontext context = nullptr;
  if (!g_channel.load(std::memory_order_acquire) || !green || !g_driver.cuCtxFromGreenCtx ||
      g_driver.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS || !context) {
    return Call::real(green);
  }
  return destroying_context(context, [&] { return Call::real(green); });
}
// Detaching destroys, unless the program has attached: then only the driver knows how often, and the
// slots stay.
inline std::atomic<bool> g_has_attached{false};

template <class Call>
CUresult attach_context(CUcontext* context, unsigned flags) {
  const CUresult result = Call::real(context, flags);
  if (result == CUDA_SUCCESS) g_has_attached.store(true, std::memory_order_relaxed);
  return result;
}
template <class Call>
CUresult detach_context(CUcontext context) {
  if (g_has_attached.load(std::memory_order_relaxed)) return Call::real(context);
  return destroy_context<Call>(context);
}
template <class Call>
CUresult reset_device(CUdevice device) {
  return destroying_primary(device, [&] { return Call::real(device); });
}

}  // namespace tandem::shim::handlers
