#include "precedence.h"

#include <atomic>

#include "old_glibc.h"
#include "real_dlsym.h"
#include "tandem_mark.h"

extern "C" __attribute__((visibility("hidden"))) decltype(tandem_mark_v1) tandem_own_mark;

namespace tandem::shim {

bool comes_second() {
  enum : char { kUnknown, kFirst, kSecond };
  static std::atomic<char> known{kUnknown};
  if (known.load(std::memory_order_relaxed) == kUnknown) {
    // All versions of the library have it. Not RTLD_DEFAULT, which for a library that is linked
    // with -Bsymbolic begins with that library.
    void* const program = old_glibc::dlopen(nullptr, RTLD_LAZY);
    void* const first = program ? real_dlsym(program, "tandem_mark_v1") : nullptr;
    const bool is_ours = !first || first == reinterpret_cast<void*>(&tandem_own_mark);
    known.store(is_ours ? kFirst : kSecond, std::memory_order_relaxed);
  }
  return known.load(std::memory_order_relaxed) == kSecond;
}

}  // namespace tandem::shim
