// The exported functions: guard, then forward to the handler that calls.def names. A call whose
// real function is missing answers as a driver that lacks it.
#include "driver.h"
#include "guard.h"
#include "handlers.h"

namespace tandem::shim {
__thread bool Reentry::inside_ __attribute__((tls_model("initial-exec"))) = false;
}  // namespace tandem::shim

#define SHIM_ENTRY(symbol, handler, parameters, arguments)                       \
  extern "C" __attribute__((visibility("default"))) CUresult symbol parameters { \
    using namespace tandem::shim;                                                \
    if (!driver().symbol) return CUDA_ERROR_NOT_SUPPORTED;                       \
    const Reentry call;                                                          \
    if (!call.outermost()) return g_driver.symbol arguments;                     \
    return handlers::handler<symbol##_call> arguments;                           \
  }
#include "shim_entries.inc"
#undef SHIM_ENTRY
