// What the window's length hangs on: from its last end back, always to what was waited for last
// (critical path method, Kelley and Walker 1959; of parallel programs, Yang and Miller 1988).
//
// Where an operation waited for nothing but its submission, the host is what counts: the path goes
// to the thread's last wait before it, and the time since then is the host's. Where a wait ended later
// than all that is known, and GPU work without a duration lies behind it, that is what it waited for:
// the path goes through that work, and the time since the wait was called is the GPU's.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

// earlier + host + held + gpu + other = the window's length.
struct CriticalPath {
  std::vector<NodeId> nodes;  // in order
  uint64_t total_ns = 0;      // from the window's first start to its last end
  uint64_t gpu_ns = 0;        // GPU operations on the path
  uint64_t host_ns = 0;       // the host between its waits and what it submitted, and its functions
  uint64_t held_ns = 0;       // of what would be the host's: its launches were held back meanwhile
  uint64_t earlier_ns = 0;    // work from before the window that the path begins behind
  uint64_t other_ns = 0;      // stream memory operations, and whatever lies between measured times
};

// `held` is as united() makes it.
CriticalPath critical_path(const Window& window, const Schedule& schedule,
                           const std::vector<Times>& held);

// The window's first start and last end; 0, 0 if it is empty.
Times extent(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
