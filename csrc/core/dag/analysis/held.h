// Times in which the job's launches were held back: sorted intervals that do not overlap.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

// Sorts the intervals, and merges those that overlap.
inline std::vector<Times> united(std::vector<Times> spans) {
  std::sort(spans.begin(), spans.end(), [](const Times& a, const Times& b) {
    return std::make_pair(a.start_ns, a.end_ns) < std::make_pair(b.start_ns, b.end_ns);
  });
  std::vector<Times> out;
  for (const Times& span : spans) {
    if (out.empty() || span.start_ns > out.back().end_ns) out.push_back(span);
    else out.back().end_ns = std::max(out.back().end_ns, span.end_ns);
  }
  return out;
}

// How much of [start_ns, end_ns) lies in `held`; logarithmic in their number, linear in those
// inside.
inline uint64_t held_between(const std::vector<Times>& held, uint64_t start_ns, uint64_t end_ns) {
  auto span = std::upper_bound(held.begin(), held.end(), start_ns,
                               [](uint64_t ns, const Times& one) { return ns < one.end_ns; });
  uint64_t sum_ns = 0;
  for (; span != held.end() && span->start_ns < end_ns; ++span)
    sum_ns += minus(std::min(end_ns, span->end_ns), std::max(start_ns, span->start_ns));
  return sum_ns;
}

// The parts of `spans` that lie in none of `others`; both must be as united() returns them.
inline std::vector<Times> without(const std::vector<Times>& spans,
                                  const std::vector<Times>& others) {
  std::vector<Times> out;
  auto other = others.begin();
  for (Times span : spans) {
    while (other != others.end() && other->end_ns <= span.start_ns) ++other;
    for (auto next = other; next != others.end() && next->start_ns < span.end_ns; ++next) {
      if (next->start_ns > span.start_ns) out.push_back({span.start_ns, next->start_ns});
      span.start_ns = std::min(span.end_ns, next->end_ns);
    }
    if (span.end_ns > span.start_ns) out.push_back(span);
  }
  return out;
}

}  // namespace tandem::dag::analysis
