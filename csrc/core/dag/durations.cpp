#include "dag/durations.h"

#include <algorithm>

namespace tandem::dag {

size_t DurationHistogram::bin_of(uint64_t duration_ns) {
  if (duration_ns < lower_ns(0)) return 0;
  const auto octave = static_cast<uint64_t>(63 - __builtin_clzll(duration_ns));
  const uint64_t within = (duration_ns >> (octave - 3)) & (kPerOctave - 1);
  return std::min<size_t>(kBins - 1, (octave - kFirstOctave) * kPerOctave + within);
}

uint64_t DurationHistogram::lower_ns(size_t bin) {
  return (kPerOctave + bin % kPerOctave) << (bin / kPerOctave + kFirstOctave - 3);
}

void DurationHistogram::add(uint64_t duration_ns) {
  weights_[bin_of(duration_ns)] += kWeight;
  if (++added_ % kHalveAt == 0) fade();
}

void DurationHistogram::fade() {
  for (uint32_t& weight : weights_) weight /= 2;
}

void DurationHistogram::clear() { *this = {}; }

// Assumes that the durations of a bin are evenly distributed over it.
double DurationHistogram::weight_after(size_t bin, uint64_t so_far_ns) const {
  const uint64_t begin = lower_ns(bin), end = lower_ns(bin + 1);
  if (so_far_ns <= begin) return weights_[bin];
  if (so_far_ns >= end) return 0;
  return weights_[bin] * static_cast<double>(end - so_far_ns) / static_cast<double>(end - begin);
}

uint64_t DurationHistogram::remaining_ns(double part, uint64_t so_far_ns) const {
  double all = 0;
  for (size_t bin = 0; bin < kBins; ++bin) all += weight_after(bin, so_far_ns);
  if (added_ < kEnough || all < static_cast<double>(kFewest * kWeight)) return 0;
  double left = part * all;
  uint64_t until = so_far_ns;
  for (size_t bin = 0; bin < kBins && left > 0; ++bin) {
    const double weight = weight_after(bin, so_far_ns);
    if (weight == 0) continue;
    const uint64_t begin = std::max(lower_ns(bin), so_far_ns);
    const auto width = static_cast<double>(lower_ns(bin + 1) - begin);
    until = begin + static_cast<uint64_t>(width * std::min(1.0, left / weight));
    left -= weight;
  }
  return std::max<uint64_t>(1, until - so_far_ns);
}

}  // namespace tandem::dag
