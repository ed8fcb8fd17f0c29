// Every analysis of a window of a graph, in one. Pure: the same window gives the same answer. Time
// and memory are linear in the window's nodes, edges and accesses, except for sorting.
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
  std::vector<Times> measured;  // for reconstruct()
  Device device;
  std::vector<Times> held;  // for gaps() and critical_path(), as united() returns it
  uint64_t pause_ns = 1000000;
  uint64_t least_gap_ns = 50000;   // for gap_places()
  std::vector<NodeId> iterations;  // for gap_places(): the first node of each
  bool periodic = false;           // for next_uses()
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
