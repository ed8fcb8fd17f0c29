// From the addresses that the lanes of a warp name to memory of this process.
#pragma once

#include "warp.h"

namespace softgpu::ptx {

// Instr::mode of whatever accesses memory.
inline constexpr uint8_t kNarrowBase = 1;  // the base register has 32 bits
inline constexpr uint8_t kSpaceShift = 1;

inline Space space_of(const Instr& in) {
  return static_cast<Space>(in.mode >> kSpaceShift & 7);
}

// False, and the block has an error, when a lane in the mask may not access its address.
bool locate(Warp& warp, const Instr& in, uint32_t mask, uint32_t bytes, uint64_t (&at)[kLanes]);

}  // namespace softgpu::ptx
