// How long an iteration would take on another number of SMs, told from the records of one.
//
// The window is done again, event by event, as Daydream (Zhu et al., USENIX ATC 2020) does a trace:
//   host    a thread hands its next operation over when it has thought as long as in the record:
//           since its last one, or since what it waited for had ended. Time in which it was held back
//           does not count; the record is shorter by it where nothing of the job's was on the GPU then.
//           Nor do pauses between requests, of who serves some: where those come by chance, each record
//           has others
//   order   an operation begins when those that order edges lead from have ended
//   SMs     kernels that may run take SMs in the order in which they became ready: each what it
//           demands (waves.h) or what is left; who gets none waits. Whenever one begins or ends, all
//           go on at their new rate (list scheduling, Graham 1969, with divisible work)
//   others  copies, memsets and the like take as long as in the record
//
// What ran beside something else of the same process took longer than it would have alone: that is
// taken out first, with the same rule for SMs. Then durations are scaled so that the record's own
// length comes out: those of copies first, which are guessed by their bytes, then those of kernels,
// which are averages by function and magnitude of the grid. The window is done twice in a row, each
// stream and thread going on where it ended: what the second time adds is the length, so that a host
// that runs ahead counts for nothing.
//
// Not modelled: caches, clocks, bandwidth between own kernels, priorities of streams, and what threads
// of the host wait for from each other.
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
  uint32_t sms = 0;         // it ran on; > 0
  std::vector<Times> held;  // as united() makes it
  uint64_t pause_ns = 0;    // with nothing asked for and nothing on the GPU so long: a pause; 0 = none is
};

struct Scaling {
  std::vector<uint64_t> length_ns;  // of the window, for each number of SMs asked for
  uint64_t recorded_ns = 0;  // its own length, but for pauses and for being held back with an idle GPU
  uint64_t reconstructed_ns = 0;  // the same by its parts, before kernels were scaled
  uint64_t kernel_ns = 0;    // predicted or measured time of kernels and graphs in it
  uint64_t gridless_ns = 0;  // of that, where the grid is not known: all SMs are taken to matter
  double demand_ns = 0;      // of that, by the part of the SMs that hold the grid of each (waves.h)
  uint64_t operations = 0;   // on the GPU
  uint64_t untimed = 0;      // of these, that are taken to last 0 ns
  bool is_crowded = false;   // more than kMostAtOnce kernels could run at a time: no length is told
};

// `sm_counts` > 0 each; `gamma` of all kernels, 0 to 1. Takes time in proportion to the window's nodes
// and edges, for each number of SMs, and to the kernels that may run at a time.
Scaling scaling(const Window& window, const Recording& recording,
                const std::vector<uint32_t>& sm_counts, double gamma, const SmLimits& limits = {});

}  // namespace tandem::dag::analysis
