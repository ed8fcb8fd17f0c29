// The exported functions: each guards against re-entry, then forwards to the handler that calls.def
// names. A call whose real function is missing answers like a driver that lacks it.
//
// Before the driver is known, while calls are traced, and in a child that has nothing of ours, a
// call takes the slow way instead: one test of a single byte covers all three, so that tracing
// costs nothing where it is off.
#include "driver.h"
#include "guard.h"
#include "handlers.h"
#include "traced.h"

namespace tandem::shim {
__thread bool Reentry::inside_ __attribute__((tls_model("initial-exec"))) = false;
}  // namespace tandem::shim

#define SHIM_ENTRY(symbol, handler, parameters, arguments, shown)                               \
  __attribute__((cold, noinline)) static CUresult symbol##_slowly parameters {                  \
    using namespace tandem::shim;                                                               \
    if (!driver().symbol) return CUDA_ERROR_NOT_SUPPORTED;                                      \
    if (g_way.load(std::memory_order_relaxed) == Way::kPlain) return g_driver.symbol arguments; \
    /* The driver is known now. Calls again, so that the handler is inlined into one caller. */ \
    if (!tracing::is_on()) return symbol arguments;                                             \
    const Reentry call;                                                                         \
    if (!call.outermost()) return g_driver.symbol arguments;                                    \
    tracing::Span span(tracing::kIndex_##symbol);                                               \
    const CUresult result = handlers::handler<tracing::Traced<symbol##_call>> arguments;        \
    tracing::Arguments written(result, symbol##_call::kPerThread);                              \
    (void)(written shown);                                                                      \
    span.end(written);                                                                          \
    tracing::after<symbol##_call>(written);                                                     \
    return result;                                                                              \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) CUresult symbol parameters {                \
    using namespace tandem::shim;                                                               \
    if (__builtin_expect(g_way.load(std::memory_order_acquire) != Way::kFast, 0))               \
      return symbol##_slowly arguments;                                                         \
    if (!g_driver.symbol) return CUDA_ERROR_NOT_SUPPORTED;                                      \
    const Reentry call;                                                                         \
    if (!call.outermost()) return g_driver.symbol arguments;                                    \
    return handlers::handler<symbol##_call> arguments;                                          \
  }
#include "shim_entries.inc"
#undef SHIM_ENTRY
