#include "precedence.h"

#include <atomic>

#include "old_glibc.h"
#include "real_dlsym.h"

// A symbol that only this library has: a program may have functions of the names that the library
// exports. The hidden name refers to this copy's own.
extern "C" {
extern __attribute__((visibility("default"))) const char tandem_preload_v1[];
const char tandem_preload_v1[] = "libtandem";
extern const char tandem_own_preload[]
    __attribute__((alias("tandem_preload_v1"), visibility("hidden")));
}

namespace tandem::shim {

bool comes_second() {
  enum : char { kUnknown, kFirst, kSecond };
  static std::atomic<char> known{kUnknown};
  if (known.load(std::memory_order_relaxed) == kUnknown) {
    // Not RTLD_DEFAULT: from a library linked with -Bsymbolic, that search starts in the library
    // itself.
    void* const program = old_glibc::dlopen(nullptr, RTLD_LAZY);
    const void* const first = program ? real_dlsym(program, "tandem_preload_v1") : nullptr;
    const bool is_ours = !first || first == tandem_own_preload;
    known.store(is_ours ? kFirst : kSecond, std::memory_order_relaxed);
  }
  return known.load(std::memory_order_relaxed) == kSecond;
}

}  // namespace tandem::shim
