// How many GPU operations run at each time: the sweep from which width, overlap and gaps are read.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

struct Step {
  uint64_t ns;  // from then on, until the next step
  uint32_t kernels;
  uint32_t transfers;
  uint32_t memsets;
  uint32_t running() const { return kernels + transfers + memsets; }
};

// For the nodes [from, window.last), by time, each at a different ns; in the last step nothing
// runs. Empty if no GPU operation has a length.
std::vector<Step> steps(const Window& window, const Schedule& schedule, NodeId from);

}  // namespace tandem::dag::analysis
