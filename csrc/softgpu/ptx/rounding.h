// The CPU's rounding mode for the length of one instruction. The operations inside have to be kept
// from the optimiser, which believes in round-to-nearest: see `opaque`.
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

// A value the compiler knows nothing about, so that it cannot move what depends on it.
template <class T>
inline T opaque(T value) {
  asm volatile("" : "+x"(value) : : "memory");
  return value;
}

}  // namespace softgpu::ptx
