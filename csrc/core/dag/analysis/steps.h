// How many GPU operations run from when to when: the sweep that width, overlap and gaps are read from.
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

// Of the nodes [from, window.last), in order of time, each at another ns; the last has nothing
// running. Empty if no GPU operation has a length.
std::vector<Step> steps(const Window& window, const Schedule& schedule, NodeId from);

}  // namespace tandem::dag::analysis
