// The real driver: its functions, looked up once in the loaded libcuda.so.1. A null member means
// that this driver lacks the call. The shim never loads the library; it only uses one that is
// already in the process.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "always_inline.h"
#include "old_cuda.h"
#include "own_page.h"
#include "through.h"

namespace tandem::shim {

struct Driver {
  // Those that the shim interposes.
#define CALL(name) decltype(&::name) name = nullptr;
#include "shim_calls.inc"
#undef CALL
  // Those that the shim only calls.
#define OWN_CALL(name) decltype(&::name) name = nullptr;
#include "own_calls.def"
#undef OWN_CALL
  // The software GPU's clock; null on a real driver.
  uint64_t (*softgpu_now_ns)() = nullptr;
  int (*softgpu_clock_is_virtual)() = nullptr;
  int (*softgpu_wait_for_change)(uint64_t, uint64_t, int) = nullptr;
  void (*softgpu_wait_begin)() = nullptr;
  void (*softgpu_wait_end)() = nullptr;
};

// How an exported function handles a call.
enum class Way : uint8_t {
  kUnknown,  // the driver has not been looked up, or this is a new child
  kFast,
  kTraced,
  // Straight to the driver: a child that no fork handler has prepared, or not the first copy of
  // this library.
  kPlain,
};

// Filled by resolve_driver; never changes after g_way is set.
extern Driver g_driver;
// Release in resolve_driver, acquire in driver() and the entries.
inline constexpr std::atomic<Way>& g_way = g_own_page.way;

// Looks up the driver's functions. False while no libcuda.so.1 is in the process.
bool resolve_driver();

// Called in a child process, where everything starts over.
void resume_in_child();

inline const Driver& driver() {
  if (g_way.load(std::memory_order_acquire) == Way::kUnknown) resolve_driver();
  return g_driver;
}

// What the handlers call: the driver or, with faults planted (faults.h), what stands in front of
// it.
#ifdef TANDEM_FAULTS
const Driver& handed_to();
#else
inline const Driver& handed_to() { return g_driver; }
#endif

// One tag type per call, with which the handlers are instantiated.
constexpr bool ends_with(const char* text, const char* end) {
  const char* last = nullptr;
  for (const char* at = text; *at; ++at) {
    const char *a = at, *b = end;
    while (*a && *a == *b) ++a, ++b;
    if (!*a && !*b) last = at;
  }
  return last != nullptr;
}
constexpr bool contains(const char* text, const char* part) {
  for (const char* at = text; *at; ++at) {
    const char *a = at, *b = part;
    while (*b && *a == *b) ++a, ++b;
    if (!*b) return true;
  }
  return false;
}

#define CALL(symbol)                                                                               \
  struct symbol##_call {                                                                           \
    static constexpr const char* kName = #symbol;                                                  \
    /* NULL means the calling thread's default stream, not the legacy one. */                      \
    static constexpr bool kPerThread = ends_with(#symbol, "_ptsz") || ends_with(#symbol, "_ptds"); \
    template <class... A>                                                                          \
    ALWAYS_INLINE static CUresult real(A... arguments) {                                           \
      if constexpr (partition::name_a_stream<A...>) {                                              \
        return partition::pass_on<partition::how(#symbol), kPerThread>(handed_to().symbol,         \
                                                                       arguments...);              \
      }                                                                                            \
      return handed_to().symbol(arguments...);                                                     \
    }                                                                                              \
  };
#include "shim_calls.inc"
#undef CALL

}  // namespace tandem::shim
