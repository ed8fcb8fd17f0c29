#include "durations.h"

#include <algorithm>

namespace tandem::shim {

DurationTable g_durations;

// Two threads that claim a place for one key at the same time may get two places; each then learns
// a part.
Duration* DurationTable::probe(uint64_t key) {
  const uint64_t hash = place_of(key);
  Duration* vacant = nullptr;
  for (uint32_t i = 0; i < kProbes; ++i) {
    Duration& entry = entries_[(hash + i) % kEntries];
    const uint64_t held = entry.key.load(std::memory_order_relaxed);
    if (held == key) return &entry;
    if (!vacant && (held == kFree || held == kForgotten)) vacant = &entry;
    if (held == kFree) break;
  }
  if (!vacant) return nullptr;
  uint64_t held = vacant->key.load(std::memory_order_relaxed);
  const bool claimed = (held == kFree || held == kForgotten) &&
                       vacant->key.compare_exchange_strong(held, key, std::memory_order_relaxed);
  return claimed || held == key ? vacant : nullptr;
}

template <class Change>
void DurationTable::each(uint64_t key, Change change) {
  const uint64_t hash = place_of(key);
  for (uint32_t i = 0; i < kProbes; ++i) {
    Duration& entry = entries_[(hash + i) % kEntries];
    const uint64_t held = entry.key.load(std::memory_order_relaxed);
    if (held == kFree) return;
    if (held == key) change(entry);
  }
}

void DurationTable::forget(uint64_t key) {
  each(key, [](Duration& entry) {
    entry.age.fetch_add(1, std::memory_order_relaxed);
    entry.ns.store(0, std::memory_order_relaxed);
    entry.seen.store(0, std::memory_order_relaxed);
    entry.samples.store(0, std::memory_order_relaxed);
    entry.turn.store(0, std::memory_order_relaxed);
    entry.key.store(kForgotten, std::memory_order_relaxed);
  });
}

void DurationTable::doubt(uint64_t key) {
  // The turn stays: otherwise, if a graph is updated before every launch, every launch would be
  // sampled.
  each(key, [](Duration& entry) { entry.samples.store(0, std::memory_order_relaxed); });
}

void DurationTable::make_stale() {
  for (Duration& entry : entries_) {
    if (entry.key.load(std::memory_order_relaxed) <= kForgotten) continue;
    entry.age.fetch_add(1, std::memory_order_relaxed);
    entry.seen.store(0, std::memory_order_relaxed);
    entry.samples.store(0, std::memory_order_relaxed);
    entry.turn.store(0, std::memory_order_relaxed);
  }
}

void DurationTable::measured(Duration& duration, uint64_t ns, uint32_t age) {
  if (duration.age.load(std::memory_order_relaxed) != age) return;
  const auto fresh = static_cast<uint32_t>(std::clamp<uint64_t>(ns, 1, UINT32_MAX));
  // The entry may have become stale while an earlier sample was stored; what remains of that is no
  // measurement.
  const bool is_current = duration.known_at.load(std::memory_order_relaxed) == age;
  const uint32_t samples = is_current ? duration.samples.load(std::memory_order_relaxed) : 0;
  const uint32_t known = duration.ns.load(std::memory_order_relaxed);
  // At first the smallest counts: a sample may include another process's turn, but is never shorter
  // than the function itself.
  const uint32_t early = samples == 0 ? fresh : std::min(known, fresh);
  const uint32_t late =
      known - known / 4 + std::min(fresh, known > UINT32_MAX / 4 ? UINT32_MAX : known * 4) / 4;
  duration.ns.store(samples < kSamplesSettled ? early : std::max(late, 1u),
                    std::memory_order_relaxed);
  duration.known_at.store(age, std::memory_order_relaxed);
  if (samples < kSamplesSettled) duration.samples.store(samples + 1, std::memory_order_relaxed);
}

}  // namespace tandem::shim
