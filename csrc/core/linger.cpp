#include "linger.h"

#include <algorithm>

namespace tandem {
namespace {

// A request that finds a window of others' work ahead of it is considered as bad as a GPU that
// idles for this long: about ten times what the request waits.
constexpr double kWorthNs = 3'000'000;
constexpr uint32_t kEnough = 32;    // gaps
constexpr uint32_t kHalveAt = 512;  // then all counts are halved, so old gaps fade
constexpr uint64_t kUnitNs = 1024;  // the first bucket is four units wide

}  // namespace

size_t GapHistogram::bucket_of(uint64_t gap_ns) {
  const uint64_t units = gap_ns / kUnitNs;
  if (units < 4) return 0;
  const auto octave = static_cast<size_t>(63 - __builtin_clzll(units));
  return std::min(kBuckets - 1, (octave - 2) * 4 + ((units >> (octave - 2)) & 3) + 1);
}

uint64_t GapHistogram::lower_ns(size_t bucket) {
  if (bucket == 0) return 0;
  const size_t octave = (bucket - 1) / 4;
  return ((4 + (bucket - 1) % 4) << octave) * kUnitNs;
}

void GapHistogram::add(uint64_t gap_ns) {
  counts_[bucket_of(gap_ns)].fetch_add(1, std::memory_order_relaxed);
  if (total_.fetch_add(1, std::memory_order_relaxed) + 1 < kHalveAt) return;
  uint32_t total = 0;
  for (auto& count : counts_) {
    const uint32_t half = count.load(std::memory_order_relaxed) / 2;
    count.store(half, std::memory_order_relaxed);
    total += half;
  }
  total_.store(total, std::memory_order_relaxed);
}

uint64_t GapHistogram::linger_ns(uint64_t base_ns, uint64_t limit_ns) const {
  const uint32_t total = total_.load(std::memory_order_relaxed);
  if (limit_ns <= base_ns || total < kEnough) return base_ns;
  uint64_t best_ns = base_ns, caught = 0;
  double best_gain = 0, spent_ns = 0;
  for (size_t b = 0; b + 1 < kBuckets && lower_ns(b + 1) <= limit_ns; ++b) {
    // Assume that gaps in the bucket last until its end; longer gaps cost the whole linger.
    const uint64_t linger = lower_ns(b + 1);
    const uint32_t count = counts_[b].load(std::memory_order_relaxed);
    caught += count;
    spent_ns += static_cast<double>(count) * static_cast<double>(linger);
    const double beyond = total > caught ? static_cast<double>(total - caught) : 0;
    const double gain =
        static_cast<double>(caught) * kWorthNs - spent_ns - beyond * static_cast<double>(linger);
    if (linger <= base_ns) {
      best_gain = gain;  // the gain of the base, which others have to beat
    } else if (gain > best_gain) {
      best_gain = gain;
      best_ns = linger;
    }
  }
  return best_ns;
}

}  // namespace tandem
