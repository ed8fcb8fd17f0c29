// Batched calls: many operations, and settings that each apply to a run of them.
#pragma once

#include <cstddef>

namespace softgpu {

// Settings k apply to the operations from firsts[k] up to, but not including, firsts[k + 1].
inline bool settings_cover(const size_t* firsts, size_t settings, size_t operations) {
  if (!firsts || settings == 0 || settings > operations || firsts[0] != 0) return false;
  for (size_t k = 1; k < settings; ++k) {
    if (firsts[k] <= firsts[k - 1]) return false;
  }
  return firsts[settings - 1] < operations;
}

}  // namespace softgpu
