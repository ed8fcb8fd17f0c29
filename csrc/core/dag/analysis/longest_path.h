// The longest chain of operations by GPU time, over a part of the edges: the work/span bound (Brent
// 1974; Graham 1969). However fast the host and however wide the GPU, the work cannot be done
// sooner with these durations.
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
// begin together with its predecessor.
LongestPath longest_by_order(const Window& window, const Schedule& schedule);

// By what operations read and write alone: as if only the buffers mattered, as they are reused.
// Returns nothing if some operation of the window may touch more than is known, or one is missing.
std::optional<LongestPath> longest_by_data(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
