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
  static uint64_t key_of(uint64_t function, uint32_t blocks);

  // Lock-free; null when the key's neighbourhood is full: such a function stays unknown.
  Duration* find(uint64_t key);

  // One measurement. Helper thread only.
  static void measured(Duration& duration, uint64_t ns);

 private:
  static constexpr uint32_t kEntries = 4096;
  static constexpr uint32_t kProbes = 16;
  Duration entries_[kEntries];
};

extern DurationTable g_durations;

}  // namespace tandem::shim
