// The exported names that the shim looks up, without their bodies. C++ tests call the code behind
// them, and for a sanitizer a thousand entries take longer to compile than the whole shim.
#include "driver.h"
#include "guard.h"

namespace tandem::shim {
__thread bool Reentry::inside_ __attribute__((tls_model("initial-exec"))) = false;
}  // namespace tandem::shim

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define SHIM_ENTRY(symbol, handler, parameters, arguments, shown) \
  extern "C" CUresult symbol parameters { return CUDA_ERROR_NOT_SUPPORTED; }
#include "shim_entries.inc"
#undef SHIM_ENTRY
