#include "dag/allocations.h"

#include <algorithm>

namespace tandem::dag {
namespace {

bool ends_before(const Allocation& one, uint64_t address) {
  return one.base < address && address - one.base >= one.bytes;
}

bool begins_before(const Allocation& one, uint64_t address) { return one.base < address; }

uint64_t end_of(const Allocation& one) {
  return one.bytes > UINT64_MAX - one.base ? UINT64_MAX : one.base + one.bytes;
}

}  // namespace

const Allocation* holding(const std::vector<Allocation>& known, uint64_t address) {
  const auto after = std::upper_bound(known.begin(), known.end(), address,
                                      [](uint64_t a, const Allocation& b) { return a < b.base; });
  if (after == known.begin()) return nullptr;
  const Allocation& before = *(after - 1);
  return address - before.base < before.bytes ? &before : nullptr;
}

void Allocations::add(Allocation added) {
  if (added.bytes == 0) return;
  const auto first = std::lower_bound(known_.begin(), known_.end(), added.base, ends_before);
  const auto last = std::lower_bound(first, known_.end(), end_of(added), begins_before);
  const auto place = known_.erase(first, last);
  if (known_.size() < kMost) known_.insert(place, added);
}

uint64_t Allocations::remove(uint64_t base) {
  const auto found = std::lower_bound(known_.begin(), known_.end(), base, begins_before);
  if (found == known_.end() || found->base != base) return 0;
  const uint64_t bytes = found->bytes;
  known_.erase(found);
  return bytes;
}

}  // namespace tandem::dag
