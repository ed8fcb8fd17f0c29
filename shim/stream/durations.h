// How long each function takes on the GPU, measured on a sample of its launches. A key is a function
// and the magnitude of its grid. What was measured on other SMs than the job has now is stale: a first
// guess, which the next measurement replaces.
#pragma once

#include <atomic>
#include <cstdint>

#include "always_inline.h"

namespace tandem::shim {

inline constexpr uint32_t kSamplesWanted = 3;
// With the next ones, which are launches apart: the first may all hold the same turn of another process.
inline constexpr uint32_t kSamplesSettled = 5;
// Launches of a function between two tries when as many samples as are wanted were begun: one
// may have failed, but to sample every launch until the helper has read them would cost a burst dear.
inline constexpr uint32_t kLaunchesPerTry = 17;

struct alignas(32) Duration {
  std::atomic<uint64_t> key;      // kFree, kForgotten, or a key; claimed by compare-exchange
  std::atomic<uint32_t> ns;       // helper: relaxed; a hint
  std::atomic<uint32_t> seen;     // launches, counted up to kSamplesWanted only
  std::atomic<uint32_t> samples;  // measured, counted up to kSamplesSettled only
  std::atomic<uint32_t> age;      // of what was forgotten or is stale: its samples do not count any more
  std::atomic<uint32_t> known_at;  // the age of the newest sample that counted; relaxed, as all of it
  // Samples begun, up to kSamplesWanted, and beyond that the launches since. What cannot be sampled
  // now is due again at its next launch, or a burst of launches would leave it unknown for long.
  std::atomic<uint32_t> turn;

  [[nodiscard]] ALWAYS_INLINE bool is_stale() const {
    return known_at.load(std::memory_order_relaxed) != age.load(std::memory_order_relaxed) &&
           ns.load(std::memory_order_relaxed) != 0;
  }

  // Of one that is not settled: whether this launch is to be sampled.
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

  // One measurement of a launch that was made when the entry was of this `age`. Helper thread only.
  static void measured(Duration& duration, uint64_t ns, uint32_t age);

  // What the key stands for is destroyed, and another may get its address; or it has changed, and
  // what is known of it is only a first guess.
  void forget(uint64_t key);
  void doubt(uint64_t key);

  // Streams have other SMs from here on: all that is known becomes stale, and is measured as if it were
  // new; what is being measured does not count. Takes time in proportion to the table.
  void make_stale();

 private:
  static constexpr uint32_t kEntries = 4096;
  static constexpr uint32_t kProbes = 16;
  static uint64_t place_of(uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 40; }
  static constexpr uint64_t kFree = 0, kForgotten = 1;  // no key: those have their highest bit set
  Duration* probe(uint64_t key);
  template <class Change>
  void each(uint64_t key, Change change);
  Duration entries_[kEntries];
};

extern DurationTable g_durations;

}  // namespace tandem::shim
