// Captures, and the ends of streams.
#pragma once

#include <cuda.h>


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

}  // namespace tandem::shim::handlers
