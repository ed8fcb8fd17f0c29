// How much longer a kernel takes on fewer SMs, from its grid alone: wave scaling (Yu et al.,
// Habitat, USENIX ATC 2021, section 4.1), counted in blocks.
//
//   resident  blocks that an SM holds at once, as limited by threads and blocks (CUDA C++
//             Programming Guide, table of compute capabilities). Registers and shared memory may
//             allow fewer: then a kernel demands more SMs than is said here
//   demand    SMs that hold the whole grid: more SMs do not make it faster
//   rounds(n) = max(1, ceil(blocks / n) / resident)
//   T(n)      = T(N) * (rounds(n) / rounds(N)) ^ (1 - gamma)
//
// ceil(blocks / n) is the number of blocks that the busiest of n SMs processes. An SM takes a new
// block whenever one ends, and a block with fewer beside it gets more of the SM, so that a last
// wave that is not full does not take as long as a full one. `gamma`, the memory-boundness from 0
// to 1, is the part of the time that does not depend on the number of SMs: memory bandwidth is not
// divided.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tandem::dag::analysis {

// The most that an SM holds.
struct SmLimits {
  uint32_t threads = 2048;
  uint32_t blocks = 32;
};

struct Grid {
  uint32_t blocks = 0;         // 0 = not known: assumed to be many more than SMs
  uint32_t block_threads = 0;  // 0 = not known: assume that a block fills its SM
};

constexpr uint32_t resident_blocks(const Grid& grid, const SmLimits& limits) {
  if (grid.block_threads == 0) return 1;
  const uint32_t most = std::min(limits.blocks, limits.threads / grid.block_threads);
  return std::max(1u, most);
}

// From 1 to `sms`.
constexpr uint32_t sm_demand(const Grid& grid, const SmLimits& limits, uint32_t sms) {
  if (grid.blocks == 0) return std::max(1u, sms);
  const uint32_t wanted = (grid.blocks - 1) / resident_blocks(grid, limits) + 1;
  return std::max(1u, std::min(wanted, sms));
}

// `sms` > 0. For an unknown grid only ratios are meaningful.
inline double rounds(const Grid& grid, const SmLimits& limits, uint32_t sms) {
  if (grid.blocks == 0) return 1.0 / sms;
  const uint32_t busiest = (grid.blocks - 1) / sms + 1;
  return std::max(1.0, static_cast<double>(busiest) / resident_blocks(grid, limits));
}

// The factor by which the kernel takes longer on `sms` SMs than on `from`; both > 0.
inline double stretch(const Grid& grid, const SmLimits& limits, uint32_t from, uint32_t sms,
                      double gamma) {
  const double ratio = rounds(grid, limits, sms) / rounds(grid, limits, from);
  return gamma <= 0 ? ratio : std::pow(ratio, 1 - std::min(gamma, 1.0));
}

}  // namespace tandem::dag::analysis
