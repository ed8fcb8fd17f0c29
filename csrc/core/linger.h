// How long a latency-class process should count as busy after its last work, learnt from the gaps it
// leaves. Holding others back costs the GPU the time that is waited; letting them in costs the next
// request their work in front of it. Of all lingers the one is taken that gains most over the gaps
// seen lately: servers pause for a moment between requests that queue, and for long when none do.
//
// Gaps are added by whoever submits, the linger is asked for by whoever sees the process idle; any
// thread. Counts are relaxed: one that gets lost is one observation less.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tandem {

class GapHistogram {
 public:
  // The process was idle for gap_ns, then submitted again.
  void add(uint64_t gap_ns);

  // In [base_ns, limit_ns]; base_ns until enough gaps were seen, or when limit_ns is no larger.
  uint64_t linger_ns(uint64_t base_ns, uint64_t limit_ns) const;

 private:
  // Logarithmic, four to an octave: bucket b holds gaps from lower_ns(b) up to lower_ns(b + 1).
  static constexpr size_t kBuckets = 64;
  static size_t bucket_of(uint64_t gap_ns);
  static uint64_t lower_ns(size_t bucket);

  std::atomic<uint32_t> counts_[kBuckets]{};
  std::atomic<uint32_t> total_{0};
};

}  // namespace tandem
