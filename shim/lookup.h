// Finds the shim's function that answers a look-up, by exported name or by cuGetProcAddress's
// arguments.
#pragma once

#include <cstdint>

namespace tandem::shim {

// The shim's function for an exported driver symbol; null when the shim does not interpose it or
// the real driver lacks it. O(log n), no heap.
void* wrapper_of(const char* exported_symbol);

// The same, but only where the driver's symbol is `function` itself.
void* wrapper_of(const char* exported_symbol, const void* function);

// The exported symbols that cuGetProcAddress(base, version, flags) may stand for, oldest first. The
// call returns the newest of them that the driver has.
struct Revisions {
  struct Revision {
    const char* exported;
    int since;
  };
  static constexpr uint32_t kMax = 8;  // a name has four at most; one with more is left alone
  Revision each[kMax];
  uint32_t count = 0;
  bool all_known = true;  // false: the version is newer than the table, so later ones may exist
};
Revisions revisions_of(const char* base, int cuda_version, uint64_t flags);

}  // namespace tandem::shim
