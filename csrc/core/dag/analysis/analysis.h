// All that there is to say about a window of a graph. Pure: the same window gives the same answer.
// Time and memory are linear in the window's nodes and edges, but for sorting.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dag/analysis/critical_path.h"
#include "dag/analysis/longest_path.h"
#include "dag/analysis/schedule.h"
#include "dag/analysis/unknown.h"

namespace tandem::dag::analysis {

struct Analysis {
  NodeId first;
  NodeId last;
  Unknown unknown;
  Schedule schedule;
  CriticalPath critical;
  LongestPath gpu_critical;
  std::optional<LongestPath> data_critical;
  std::vector<uint64_t> slack_ns;
};

// `from` and `measured` are those of reconstruct().
Analysis analyse(const Window& window, NodeId from, const std::vector<Times>& measured);

}  // namespace tandem::dag::analysis
