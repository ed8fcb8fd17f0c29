// The longest chain of operations by what the GPU takes for them, over a part of the edges: the
// work/span bound (Brent 1974; Graham 1969). However fast the host is and however wide the GPU, it
// cannot be done sooner by the durations as they are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

struct LongestPath {
  std::vector<NodeId> nodes;  // in order
  uint64_t length_ns = 0;
};

// By the order that the program asks for, waits of the host included. A programmatic launch may
// begin when its predecessor does.
LongestPath longest_by_order(const Window& window, const Schedule& schedule);

// By what operations read and write alone: if only the needs of buffers counted, as they are reused.
// Nothing where some operation of the window may touch more than is known, or one is missing.
std::optional<LongestPath> longest_by_data(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
