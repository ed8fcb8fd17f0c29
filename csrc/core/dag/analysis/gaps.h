// When the GPU ran nothing of this job, and why, judged by the operation that ended the gap:
//
//   host      it was submitted only then: the host is slower than the GPU (launch-bound)
//   sync      as above, after the host had waited for the GPU until the gap began or longer:
//             nothing could be queued
//   pause     one of these two, and longer than `pause_ns`: the host did something else, such as
//             loading data
//   held      for more than half of it the job's launches were held back, by the intervals given
//   function  it waited for a host function in a stream
//   other     it had been submitted and nothing in the graph was missing: GPU latency, the work of
//             other jobs, stream memory operations, or an order that is not known
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/steps.h"

namespace tandem::dag::analysis {

enum class GapCause : uint8_t { kHost, kSync, kPause, kHeld, kFunction, kOther };

struct Gap {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t held_ns;  // part of it in which launches were held back
  NodeId next;       // the operation that ended it
  GapCause cause;
  uint64_t length() const { return end_ns - start_ns; }
};

// Finds the gaps between GPU operations of the window, and between work from before it and its
// first one. `held` are sorted intervals that do not overlap.
std::vector<Gap> gaps(const Window& window, const Schedule& schedule,
                      const std::vector<Times>& held, uint64_t pause_ns);

// Counts the GPU operations whose predecessors had all ended when they were submitted.
struct LaunchBound {
  uint64_t operations = 0;
  uint64_t found_idle = 0;
  double share = 0;       // found_idle / operations
  double idle_share = 0;  // of the time from first start to last end: gaps by host and sync
  bool verdict = false;
};

// A window is launch-bound if at least half of its operations found their streams empty, and the
// host left the GPU without work for at least a tenth of the time, not counting pauses.
LaunchBound launch_bound(const Window& window, const Schedule& schedule,
                         const std::vector<Gap>& gaps);

}  // namespace tandem::dag::analysis
