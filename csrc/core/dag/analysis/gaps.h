// When the GPU ran nothing of this job, and why, as far as it can be told from what ended the gap: the
// operation that ran next.
//
//   host      it was handed over only then: the host is slower than the GPU (launch-bound)
//   sync      the same, after the host had waited for the GPU until the gap began or longer: nothing
//             could be queued
//   pause     one of these two, and longer than `pause_ns`: the host did something else, such as
//             loading data
//   held      for more than half of it the job's launches were held back, by the intervals given
//   function  it waited for a host function in a stream
//   other     it had been handed over and nothing in the graph was missing: latency of the GPU, the
//             work of other jobs, stream memory operations, or an order that is not known
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/steps.h"

namespace tandem::dag::analysis {

enum class GapCause : uint8_t { kHost, kSync, kPause, kHeld, kFunction, kOther };

struct Gap {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t held_ns;  // of it
  NodeId next;       // what ended it
  GapCause cause;
  uint64_t length() const { return end_ns - start_ns; }
};

// Between GPU operations of the window, and between work from before it and its first one.
// `held` are intervals in order that do not overlap.
std::vector<Gap> gaps(const Window& window, const Schedule& schedule,
                      const std::vector<Times>& held, uint64_t pause_ns);

// GPU operations that were handed over when all that they had to wait for had ended.
struct LaunchBound {
  uint64_t operations = 0;
  uint64_t found_idle = 0;
  double share = 0;       // found_idle / operations
  double idle_share = 0;  // of the time from first start to last end: gaps by host and sync
  bool verdict = false;
};

// Launch-bound is where at least half of the operations found their streams empty, and the GPU had
// nothing to run for at least a tenth of the time because of the host, pauses not counted.
LaunchBound launch_bound(const Window& window, const Schedule& schedule,
                         const std::vector<Gap>& gaps);

}  // namespace tandem::dag::analysis
