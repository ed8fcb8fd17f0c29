// How long a latency-class process should count as busy after its last work, learnt from the gaps
// in its work. Holding others back wastes the GPU time spent waiting; letting them in
// puts their work ahead of the next request. linger_ns() picks the linger with the largest gain
// over the recent gaps: servers pause briefly between queued requests, and for long when none are
// queued.
//
// Whoever submits adds gaps, and whoever sees the process idle asks for the linger, on any thread.
// Counts are relaxed: a lost update costs one observation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tandem {

class GapHistogram {
 public:
  // Adds a gap: the process was idle for gap_ns, then submitted again.
  void add(uint64_t gap_ns);

  // Within [base_ns, limit_ns]; base_ns until enough gaps were seen, or if limit_ns is no larger.
  uint64_t linger_ns(uint64_t base_ns, uint64_t limit_ns) const;

 private:
  // Logarithmic, four buckets per octave: bucket b holds gaps from lower_ns(b) to lower_ns(b + 1).
  static constexpr size_t kBuckets = 64;
  static size_t bucket_of(uint64_t gap_ns);
  static uint64_t lower_ns(size_t bucket);

  std::atomic<uint32_t> counts_[kBuckets]{};
  std::atomic<uint32_t> total_{0};
};

}  // namespace tandem
