// Which of our functions answers a look-up, by exported name or by cuGetProcAddress's terms.
#pragma once

#include <cstdint>

namespace tandem::shim {

// Our function for an exported driver symbol, null when we do not interpose it or when the real
// driver lacks it. O(log n), no heap.
void* wrapper_of(const char* exported_symbol);

// The exported symbol that cuGetProcAddress(base, version, flags) stands for; null if unknown.
const char* exported_symbol_of(const char* base, int cuda_version, uint64_t flags);

}  // namespace tandem::shim
