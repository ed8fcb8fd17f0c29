// How long something usually lasts, learnt from earlier durations: a histogram of logarithmic bins
// in which old entries fade. Answers how much longer it lasts once it has lasted a while.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::dag {

class DurationHistogram {
 public:
  static constexpr uint64_t kEnough = 32;    // entries; with fewer nothing is claimed
  static constexpr uint64_t kFewest = 8;     // of those that lasted as long, weighted by age
  static constexpr uint64_t kHalveAt = 256;  // entries after which all weights are halved
  static constexpr uint64_t kPerOctave = 8;  // bins, each at most 1/8 as wide as its durations

  void add(uint64_t duration_ns);
  void clear();
  uint64_t added() const { return added_; }  // since it was empty

  // Of the durations longer than `so_far_ns`, all but the longest 1 - `part` lasted at most this
  // much longer, to a bin's width; never 0, except that 0 = not known. The cost is proportional to
  // the number of bins.
  uint64_t remaining_ns(double part, uint64_t so_far_ns) const;

 private:
  // From 2^15 ns (33 us) to 2^40 ns (18 minutes); the outermost bins hold shorter and longer ones.
  static constexpr uint64_t kFirstOctave = 15;
  static constexpr size_t kBins = 25 * kPerOctave;
  static constexpr uint32_t kWeight = 256;  // of a new entry, which fades in eight steps

  static size_t bin_of(uint64_t duration_ns);
  static uint64_t lower_ns(size_t bin);
  double weight_after(size_t bin, uint64_t so_far_ns) const;
  void fade();

  uint32_t weights_[kBins] = {};
  uint64_t added_ = 0;
};

}  // namespace tandem::dag
