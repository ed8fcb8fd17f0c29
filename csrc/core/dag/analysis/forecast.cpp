#include "dag/analysis/forecast.h"

#include <utility>

namespace tandem::dag::analysis {
namespace {

using Found = std::pair<uint64_t, uint64_t>;  // place, ns

std::vector<Found> by_place(const std::vector<Gap>& gaps, const std::vector<NodeId>& begins,
                            uint64_t least_ns) {
  std::vector<Found> out;
  for (const Gap& gap : gaps) {
    const auto after = std::upper_bound(begins.begin(), begins.end(), gap.next);
    if (gap.length() < least_ns || after == begins.begin()) continue;
    out.push_back({gap.next - *(after - 1), gap.length()});
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The least value that `percent` of the `count` sorted ones do not exceed.
uint64_t quantile(const Found* sorted, size_t count, size_t percent) {
  return sorted[(count * percent + 99) / 100 - 1].second;
}

}  // namespace

std::vector<GapPlace> gap_places(const std::vector<Gap>& gaps, const std::vector<NodeId>& begins,
                                 uint64_t least_ns) {
  const std::vector<Found> found = by_place(gaps, begins, least_ns);
  std::vector<GapPlace> out;
  for (size_t i = 0; i < found.size();) {
    size_t end = i;
    while (end < found.size() && found[end].first == found[i].first) ++end;
    const size_t count = end - i;
    out.push_back({found[i].first, count, begins.size(), quantile(&found[i], count, 50),
                   quantile(&found[i], count, 90)});
    i = end;
  }
  return out;
}

}  // namespace tandem::dag::analysis
