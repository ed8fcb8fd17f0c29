// What an iteration holds of the device as its work gets done: its memory curve.
//
// Progress is the GPU time, as predicted, of the launches submitted before. An allocation takes memory
// when the host calls, a free gives it back when the driver says so: the figures are those of the
// process's own accounts, which its records of allocations, frees and waits carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm_layout.h"

namespace tandem::dag {

struct MemoryCurve {
  struct Step {
    uint64_t progress_ns;  // where it begins; the first is 0
    uint64_t held_bytes;
  };
  std::vector<Step> steps;  // ascending; empty: no record says what was held
  uint64_t length_ns = 0;   // progress at the end
  uint64_t launches = 0;
  uint64_t untimed = 0;  // of these: no prediction, so they make no progress here
};

// Of the records of one iteration, in order. At most `most` steps (>= 2): where there are more, the
// most that was held in each of as many equal parts of the progress, and what is held at the end.
MemoryCurve memory_curve(const std::vector<shm::Record>& records, size_t most);

}  // namespace tandem::dag
