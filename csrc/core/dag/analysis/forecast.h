// How long the gaps are at each place of an iteration: how long a best-effort job could be let in
// there. Empirical quantiles by nearest rank (Hyndman and Fan 1996, definition 1).
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/gaps.h"

namespace tandem::dag::analysis {

struct GapPlace {
  uint64_t place;       // the node that ends the gap, counted from the iteration's first
  uint64_t count;       // iterations that had a gap of at least `least_ns` there
  uint64_t iterations;  // out of this many
  uint64_t p50_ns;
  uint64_t p90_ns;
};

// `begins` are the first nodes of the iterations, in order; gaps before them do not count. Sorted
// by place. Iterations of varying length have their gaps at different places, hence low counts.
std::vector<GapPlace> gap_places(const std::vector<Gap>& gaps, const std::vector<NodeId>& begins,
                                 uint64_t least_ns);

}  // namespace tandem::dag::analysis
