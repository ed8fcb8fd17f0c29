// The memory curve of an iteration: the device memory it holds as its work progresses.
//
// Progress is the predicted GPU time of the launches submitted so far. An allocation takes memory
// when the host calls, a free returns it when the driver says so. The figures are those of the
// process's own accounts, which its records of allocations, frees and waits carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm_layout.h"

namespace tandem::dag {

struct MemoryCurve {
  struct Step {
    uint64_t progress_ns;  // where the step begins; the first is 0
    uint64_t held_bytes;
  };
  std::vector<Step> steps;  // ascending; empty: no record says what was held
  uint64_t length_ns = 0;   // progress at the end
  uint64_t launches = 0;
  uint64_t untimed = 0;  // launches without a prediction, which make no progress here
};

// Takes the records of one iteration, in order. Returns at most `most` steps (>= 2). If there are
// more, reports the maximum held in each of `most` - 1 equal parts of the progress, and what is
// held at the end.
MemoryCurve memory_curve(const std::vector<shm::Record>& records, size_t most);

}  // namespace tandem::dag
