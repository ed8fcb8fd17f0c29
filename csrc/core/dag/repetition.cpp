#include "dag/repetition.h"

#include <algorithm>
#include <utility>

namespace tandem::dag {
namespace {

uint64_t mix(uint64_t value) {
  value *= 0x9e3779b97f4a7c15u;
  return value ^ value >> 29;
}

}  // namespace

Repetitions::Repetitions(size_t capacity)
    : mask_(capacity - 1), history_(capacity), last_seen_(2 * capacity) {}

uint32_t& Repetitions::last_seen(uint64_t back) {
  uint64_t hash = 0;
  for (uint64_t i = 0; i < kGram; ++i) hash = mix(hash ^ symbol(back + i));
  return last_seen_[hash % last_seen_.size()];
}

void Repetitions::push(uint32_t symbol_now) {
  history_[pushed_ & mask_] = symbol_now;
  ++pushed_;
  ++fresh_;
  size_t kept = 0;
  for (size_t i = 0; i < lag_count_; ++i) {
    if (symbol(lags_[i].distance) != symbol_now) continue;
    lags_[kept] = lags_[i];
    ++lags_[kept++].matched;
  }
  lag_count_ = kept;
  if (fresh_ < kGram) return;
  uint32_t& seen = last_seen(0);
  // Another gram may have the same place: following it costs a slot until the next symbol differs.
  const auto now = static_cast<uint32_t>(pushed_);
  const uint32_t distance = now - seen;
  if (seen && distance + kGram < capacity() && distance + kGram <= fresh_) follow(distance);
  seen = now;
}

void Repetitions::follow(uint64_t distance) {
  for (size_t i = 0; i < lag_count_; ++i) {
    if (lags_[i].distance == distance) return;
  }
  // A little further back, for the first ones may not have been noticed.
  const uint64_t known = std::min(fresh_, capacity()) - distance;
  const uint64_t furthest = std::min<uint64_t>(known, 4 * kGram);
  uint64_t matched = 0;
  while (matched < furthest && symbol(matched) == symbol(matched + distance)) ++matched;
  if (matched < kGram) return;
  if (lag_count_ < kMost) {
    lags_[lag_count_++] = {distance, matched};
    return;
  }
  // The one that has explained least makes room.
  Lag& least = *std::min_element(lags_, lags_ + kMost, [](const Lag& left, const Lag& right) {
    return left.matched < right.matched;
  });
  if (least.matched <= matched) least = {distance, matched};
}

void Repetitions::grow() {
  std::vector<uint32_t> larger(2 * history_.size());
  const uint64_t kept = std::min<uint64_t>(pushed_, history_.size());
  for (uint64_t index = pushed_ - kept; index < pushed_; ++index)
    larger[index & (larger.size() - 1)] = history_[index & mask_];
  history_ = std::move(larger);
  mask_ = history_.size() - 1;
  last_seen_.assign(2 * history_.size(), 0);
  for (uint64_t back = kept; back-- > kGram;)
    last_seen(back - kGram) = static_cast<uint32_t>(pushed_ - (back - kGram));
}

void Repetitions::interrupt() {
  lag_count_ = 0;
  fresh_ = 0;
}

size_t Repetitions::going_on(Found* found) const {
  size_t count = 0;
  for (size_t i = 0; i < lag_count_; ++i) {
    const auto [distance, matched] = lags_[i];
    if (matched >= distance) found[count++] = {distance, matched + distance};
  }
  return count;
}

}  // namespace tandem::dag
