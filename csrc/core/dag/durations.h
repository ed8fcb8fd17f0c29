// How long something usually lasts, learnt from how long it lasted before: a histogram of logarithmic
// bins in which what is old fades. Answers how much longer it goes on once it has lasted a while.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::dag {

class DurationHistogram {
 public:
  static constexpr uint64_t kEnough = 32;   // added; with fewer nothing is claimed
  static constexpr uint64_t kFewest = 8;    // of them, old ones counted for less, that lasted so long
  static constexpr uint64_t kHalveAt = 256;  // added; then all that is known counts half as much
  static constexpr uint64_t kPerOctave = 8;  // bins: a bin is at most an eighth of its durations wide

  void add(uint64_t duration_ns);
  void clear();
  uint64_t added() const { return added_; }  // since it was empty

  // Of those that lasted longer than `so_far_ns`: how much longer all but the longest 1 - `part` did,
  // to a bin's width and never 0. 0 = not known. Takes time in proportion to the bins.
  uint64_t remaining_ns(double part, uint64_t so_far_ns) const;

 private:
  // From 2^15 ns (33 us) to 2^40 ns (18 minutes); shorter and longer ones are in the outermost bins.
  static constexpr uint64_t kFirstOctave = 15;
  static constexpr size_t kBins = 25 * kPerOctave;
  static constexpr uint32_t kWeight = 256;  // of one that is new: it fades in eight steps

  static size_t bin_of(uint64_t duration_ns);
  static uint64_t lower_ns(size_t bin);
  double weight_after(size_t bin, uint64_t so_far_ns) const;
  void fade();

  uint32_t weights_[kBins] = {};
  uint64_t added_ = 0;
};

}  // namespace tandem::dag
