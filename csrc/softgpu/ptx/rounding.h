// Sets the CPU's rounding mode for the duration of one instruction. The operations inside must be
// hidden from the optimiser, which assumes round-to-nearest: see `opaque`.
#pragma once

#include <cfenv>

#include "half.h"

namespace softgpu::ptx {

class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    fesetround(kModes[static_cast<int>(rounding)]);
  }
  ~RoundingScope() { fesetround(FE_TONEAREST); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;
};

// Returns the value in a way opaque to the compiler, so that it cannot move dependent operations.
template <class T>
inline T opaque(T value) {
  asm volatile("" : "+x"(value) : : "memory");
  return value;
}

}  // namespace softgpu::ptx
