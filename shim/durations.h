// How long each function takes on the GPU, measured on a sample of its launches. A key is a function
// and the magnitude of its grid.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::shim {

inline constexpr uint32_t kSamplesWanted = 3;

struct Duration {
  std::atomic<uint64_t> key;      // 0 = free; claimed once by compare-exchange, then constant
  std::atomic<uint32_t> ns;       // helper: relaxed; a hint
  std::atomic<uint32_t> seen;     // launches, counted up to kSamplesWanted only
  std::atomic<uint32_t> samples;  // measured, counted up to kSamplesWanted only
};

class DurationTable {
 public:
  static uint64_t key_of(uint64_t function, uint32_t blocks) {
    const uint64_t magnitude = blocks ? 32u - static_cast<unsigned>(__builtin_clz(blocks)) : 0u;
    return (function << 6 | magnitude) | uint64_t{1} << 63;  // never 0
  }

  // Lock-free; null when the key's neighbourhood is full: such a function stays unknown.
  Duration* find(uint64_t key) {
    Duration& first = entries_[place_of(key) % kEntries];
    if (__builtin_expect(first.key.load(std::memory_order_relaxed) == key, 1)) return &first;
    return probe(key);
  }

  // One measurement. Helper thread only.
  static void measured(Duration& duration, uint64_t ns);

 private:
  static constexpr uint32_t kEntries = 4096;
  static constexpr uint32_t kProbes = 16;
  static uint64_t place_of(uint64_t key) { return key * 0x9e3779b97f4a7c15u >> 40; }
  Duration* probe(uint64_t key);
  Duration entries_[kEntries];
};

extern DurationTable g_durations;

}  // namespace tandem::shim
