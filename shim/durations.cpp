#include "durations.h"

#include <algorithm>

namespace tandem::shim {

DurationTable g_durations;

Duration* DurationTable::probe(uint64_t key) {
  const uint64_t hash = place_of(key);
  for (uint32_t i = 0; i < kProbes; ++i) {
    Duration& entry = entries_[(hash + i) % kEntries];
    uint64_t held = entry.key.load(std::memory_order_relaxed);
    if (held == 0 &&
        entry.key.compare_exchange_strong(held, key, std::memory_order_relaxed)) {
      return &entry;
    }
    if (held == key) return &entry;
  }
  return nullptr;
}

void DurationTable::measured(Duration& duration, uint64_t ns) {
  const auto fresh = static_cast<uint32_t>(std::clamp<uint64_t>(ns, 1, UINT32_MAX));
  const uint32_t samples = duration.samples.load(std::memory_order_relaxed);
  const uint32_t known = duration.ns.load(std::memory_order_relaxed);
  // At first the smallest counts: a sample may hold another process's turn, never less than its own.
  const uint32_t early = samples == 0 ? fresh : std::min(known, fresh);
  const uint32_t late = known - known / 4 + std::min(fresh, known > UINT32_MAX / 4 ? UINT32_MAX : known * 4) / 4;
  duration.ns.store(samples < kSamplesWanted ? early : std::max(late, 1u),
                    std::memory_order_relaxed);
  if (samples < kSamplesWanted) duration.samples.store(samples + 1, std::memory_order_relaxed);
}

}  // namespace tandem::shim
