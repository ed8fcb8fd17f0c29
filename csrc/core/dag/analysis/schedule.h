// Reconstructs when each operation began and ended: telemetry knows when the host submitted it and
// how long it takes, not when the GPU began. Each begins as early as its order allows, which is the
// forward pass of the critical path method (Kelley and Walker 1959).
//
//   start = the latest of: its submission, the ends of all its predecessors by order edges
//   end   = start + duration
//   wait  = of the host: from its call to the end of what it waits for, or to its own measured end
//           if that is later: then what it waited for took longer than is known
//
// Not modelled: that unordered operations compete for the GPU (their durations include that where
// they were measured), and that a programmatic launch may begin before its predecessor ends. So
// with measured durations, a start is too early at most by the delay that others caused.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/window.h"

namespace tandem::dag::analysis {

struct Times {
  uint64_t start_ns;
  uint64_t end_ns;  // 0 in measured times: not measured
  uint64_t length() const { return minus(end_ns, start_ns); }
};

struct Schedule {
  NodeId first = 0;
  std::vector<Times> times;          // of the nodes from `first` on
  std::vector<uint64_t> handed_ns;   // when the host submitted it; never decreases within a thread
  std::vector<uint32_t> after_wait;  // distance back to its thread's last wait; 0 = unseen

  bool has(NodeId id) const { return id >= first && id - first < times.size(); }
  const Times& at(NodeId id) const { return times[id - first]; }
  uint64_t handed(NodeId id) const { return handed_ns[id - first]; }
  // The last wait of the node's thread before it, or kNoNode.
  NodeId wait_before(NodeId id) const {
    const uint32_t back = after_wait[id - first];
    return back == 0 ? kNoNode : id - back;
  }
};

// Covers the nodes [from, window.last); `from` <= window.first lets earlier work delay the
// window's. `measured` is empty, or has one entry for each node of the window, which takes
// precedence if it has an end.
Schedule reconstruct(const Window& window, NodeId from, const std::vector<Times>& measured);

}  // namespace tandem::dag::analysis
