// How long each function takes on the GPU, measured on a sample of its launches. A key is a
// function and the magnitude of its grid. A measurement made on other SMs than the job has now is
// stale: it serves as a first guess until the next measurement replaces it.
#pragma once

#include <atomic>
#include <cstdint>

#include "always_inline.h"

namespace tandem::shim {

inline constexpr uint32_t kSamplesWanted = 3;
// Including later samples, which are launches apart: the first ones may all contain the same turn
// of another process.
inline constexpr uint32_t kSamplesSettled = 5;
// How many launches of a function pass between two tries once as many samples as wanted have begun.
// A sample may have failed, but sampling every launch until the helper has read them would be too
// costly in a burst.
inline constexpr uint32_t kLaunchesPerTry = 17;

struct alignas(32) Duration {
  std::atomic<uint64_t> key;      // kFree, kForgotten, or a key; claimed by compare-exchange
  std::atomic<uint32_t> ns;       // helper: relaxed; a hint
  std::atomic<uint32_t> seen;     // launches, counted up to kSamplesWanted only
  std::atomic<uint32_t> samples;  // measured, counted up to kSamplesSettled only
  // Goes up when the entry is forgotten or becomes stale: samples of an older age no longer count.
  std::atomic<uint32_t> age;
  // The age of the newest sample that counted; relaxed, like all members.
  std::atomic<uint32_t> known_at;
  // Up to kSamplesWanted: samples begun; beyond that: plus the launches since. A launch that cannot
  // be sampled now leaves the function due at its next launch, or a burst of launches would leave
  // it unknown for long.
  std::atomic<uint32_t> turn;

  [[nodiscard]] ALWAYS_INLINE bool is_stale() const {
    return known_at.load(std::memory_order_relaxed) != age.load(std::memory_order_relaxed) &&
           ns.load(std::memory_order_relaxed) != 0;
  }

  // For a function that is not settled: whether to sample this launch.
  bool is_due() {
    const uint32_t at = turn.load(std::memory_order_relaxed);
    if (at < kSamplesWanted || at >= kSamplesWanted + kLaunchesPerTry) return true;
    turn.store(at + 1, std::memory_order_relaxed);
    return false;
  }
  void note_begun() {
    const uint32_t at = turn.load(std::memory_order_relaxed);
    turn.store(at < kSamplesWanted ? at + 1 : kSamplesWanted, std::memory_order_relaxed);
  }
};

class DurationTable {
 public:
  static uint64_t key_of(uint64_t function, uint32_t blocks) {
    const uint64_t magnitude = blocks ? 32u - static_cast<unsigned>(__builtin_clz(blocks)) : 0u;
    return (function << 6 | magnitude) | uint64_t{1} << 63;  // never 0
  }

  // Lock-free; null when the key's neighbourhood is full: such a function stays unknown.
  ALWAYS_INLINE Duration* find(uint64_t key) {
    Duration& first = entries_[place_of(key) % kEntries];
    if (__builtin_expect(first.key.load(std::memory_order_relaxed) == key, 1)) return &first;
    return probe(key);
  }

  // Adds the measurement of a launch that was made when the entry had this `age`. Helper thread
  // only.
  static void measured(Duration& duration, uint64_t ns, uint32_t age);

  // forget: what the key stands for is destroyed, and something else may get its address. doubt: it
  // has changed, so what is known of it is only a first guess.
  void forget(uint64_t key);
  void doubt(uint64_t key);

  // Streams have other SMs from here on: all durations become stale and are measured again as if
  // new; a measurement in progress does not count. Takes time in proportion to the table.
  void make_stale();

 private:
  static constexpr uint32_t kEntries = 4096;
  static constexpr uint32_t kProbes = 16;
  static uint64_t place_of(uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 40; }
  static constexpr uint64_t kFree = 0, kForgotten = 1;  // no keys: those have their highest bit set
  Duration* probe(uint64_t key);
  template <class Change>
  void each(uint64_t key, Change change);
  Duration entries_[kEntries];
};

extern DurationTable g_durations;

}  // namespace tandem::shim
