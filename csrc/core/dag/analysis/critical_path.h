// What determines the window's length: from its last end back, always to what was waited for last
// (critical path method, Kelley and Walker 1959; for parallel programs, Yang and Miller 1988).
//
// Where an operation waited only for its submission, the host is critical: the path continues at
// the thread's last wait before it, and the time since then is the host's. Where a wait ended later
// than everything known, and GPU work without a duration precedes it, it must have waited for that
// work: the path goes through the work, and the time since the wait was called is the GPU's.
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
  uint64_t host_ns = 0;       // the host between its waits and its submissions, and its functions
  uint64_t held_ns = 0;       // host time during which its launches were held back
  uint64_t earlier_ns = 0;    // work from before the window, where the path begins after it
  uint64_t other_ns = 0;      // stream memory operations, and anything between measured times
};

// `held` must be as united() returns it.
CriticalPath critical_path(const Window& window, const Schedule& schedule,
                           const std::vector<Times>& held);

// The window's first start and last end; 0, 0 if it is empty.
Times extent(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
