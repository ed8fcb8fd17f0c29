// Translates the addresses that a warp's lanes access into memory of this process.
#pragma once

#include "warp.h"

namespace softgpu::ptx {

// Instr::mode of instructions that access memory.
inline constexpr uint8_t kNarrowBase = 1;  // the base register is 32 bits wide
inline constexpr uint8_t kSpaceShift = 1;

inline Space space_of(const Instr& in) { return static_cast<Space>(in.mode >> kSpaceShift & 7); }

// Fills in `at`. Returns false and sets the block's error if a lane in the mask may not access its
// address.
bool locate(Warp& warp, const Instr& in, uint32_t mask, uint32_t bytes, uint64_t (&at)[kLanes]);

}  // namespace softgpu::ptx
