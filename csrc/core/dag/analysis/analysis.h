// All that there is to say about a window of a graph. Pure: the same window gives the same answer.
// Time and memory are linear in the window's nodes, edges and accesses, but for sorting.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dag/analysis/classes.h"
#include "dag/analysis/critical_path.h"
#include "dag/analysis/forecast.h"
#include "dag/analysis/gaps.h"
#include "dag/analysis/longest_path.h"
#include "dag/analysis/next_use.h"
#include "dag/analysis/overlap.h"
#include "dag/analysis/schedule.h"
#include "dag/analysis/unknown.h"
#include "dag/analysis/waits.h"
#include "dag/analysis/width.h"

namespace tandem::dag::analysis {

struct Options {
  NodeId since = 0;             // where reconstruct() begins
  std::vector<Times> measured;  // of reconstruct()
  Device device;
  std::vector<Times> held;  // of gaps() and critical_path(), as united() makes it
  uint64_t pause_ns = 1000000;
  uint64_t least_gap_ns = 50000;   // of gap_places()
  std::vector<NodeId> iterations;  // of gap_places(): begins
  bool periodic = false;           // of next_uses()
};

struct Analysis {
  NodeId first;
  NodeId last;
  Unknown unknown;
  Schedule schedule;
  CriticalPath critical;
  LongestPath gpu_critical;
  std::optional<LongestPath> data_critical;
  std::vector<uint64_t> slack_ns;
  Width width;
  Overlap overlap;
  Classes classes;
  NextUses next_uses;
  std::vector<Gap> gaps;
  std::vector<GapPlace> gap_places;
  LaunchBound launch_bound;
  std::vector<Wait> waits;
};

Analysis analyse(const Window& window, const Options& options);

}  // namespace tandem::dag::analysis
