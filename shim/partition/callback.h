// A stream callback receives the stream as an argument: the shim passes it the handle that the job
// knows, whichever of the driver's streams the callback was added to.
#pragma once

#include <cuda.h>

#include <cstdlib>

namespace tandem::shim::partition {

struct Callback {
  CUstreamCallback function;
  void* user;
  CUstream handle;

  static void CUDA_CB call(CUstream, CUresult status, void* at) {
    const Callback callback = *static_cast<Callback*>(at);
    std::free(at);
    callback.function(callback.handle, status, callback.user);
  }
};

// Null if there is no memory for it. Freed by the callback, or by the caller that could not add it.
inline Callback* keep_callback(CUstreamCallback function, void* user, CUstream handle) {
  auto* callback = static_cast<Callback*>(std::malloc(sizeof(Callback)));
  if (callback) *callback = {function, user, handle};
  return callback;
}

}  // namespace tandem::shim::partition
