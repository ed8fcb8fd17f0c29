// How long an iteration would take on another number of SMs, predicted from the records of one.
//
// Replays the window, event by event, as Daydream (Zhu et al., USENIX ATC 2020) does a trace:
//   host    a thread submits its next operation after it has thought as long as in the record:
//           since its last one, or since what it waited for had ended. Time in which it was held
//           back does not count; where the job had nothing on the GPU at that time, the record is
//           shorter by it. Pauses between the requests of a server do not count either: requests
//           that come at random leave other pauses in each record
//   order   an operation begins when its predecessors by order edges have ended
//   SMs     kernels that may run take SMs in the order in which they became ready: each takes what
//           it demands (waves.h) or what is left; a kernel that gets none waits. Whenever one
//           begins or ends, all continue at their new rates (list scheduling, Graham 1969, with
//           divisible work)
//   others  copies, memsets and the like take as long as in the record
//
// What ran beside other work of the same process took longer than it would have alone: that is
// taken out first, by the same rule for SMs. Then durations are scaled so that the replay has the
// record's own length: first those of copies, which are estimated from their bytes, then those of
// kernels, which are averages by function and magnitude of the grid. The window is replayed twice
// in a row, with each stream and thread continuing where it ended: what the second round adds is
// the length, so that a host that runs ahead does not count.
//
// Not modelled: caches, clocks, bandwidth between own kernels, priorities of streams, and waits of
// the host's threads for each other.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"
#include "dag/analysis/waves.h"

namespace tandem::dag::analysis {

// The record of one or more whole iterations.
struct Recording {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint32_t sms = 0;         // that it ran on; > 0
  std::vector<Times> held;  // as united() returns it
  // Shortest time without requests and GPU work that counts as a pause; 0 = none counts.
  uint64_t pause_ns = 0;
};

struct Scaling {
  std::vector<uint64_t> length_ns;  // of the window, for each number of SMs asked for
  // Its own length, without pauses and without times when it was held back with an idle GPU.
  uint64_t recorded_ns = 0;
  uint64_t reconstructed_ns = 0;  // the same from its parts, before kernels were scaled
  uint64_t kernel_ns = 0;         // predicted or measured time of kernels and graphs in it
  uint64_t gridless_ns = 0;       // of that, where the grid is unknown: all SMs assumed to matter
  double demand_ns = 0;     // of that, weighted by the share of SMs that hold each grid (waves.h)
  uint64_t operations = 0;  // on the GPU
  uint64_t untimed = 0;     // of these, those assumed to last 0 ns
  bool is_crowded = false;  // more than kMostAtOnce kernels could run at once: no length is told
};

// Each of `sm_counts` must be > 0; `gamma`, for all kernels, is 0 to 1. The cost is proportional to
// the window's nodes and edges, for each number of SMs, and to the kernels that may run at once.
Scaling scaling(const Window& window, const Recording& recording,
                const std::vector<uint32_t>& sm_counts, double gamma, const SmLimits& limits = {});

}  // namespace tandem::dag::analysis
