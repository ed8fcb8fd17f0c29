#include "dag/repetition.h"

#include <algorithm>
#include <utility>

namespace tandem::dag {
namespace {

constexpr uint64_t power(uint64_t base, unsigned exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

}  // namespace

Repetitions::Repetitions(size_t capacity)
    : mask_(capacity - 1),
      history_(capacity),
      last_seen_(2 * capacity),
      shift_(static_cast<unsigned>(__builtin_clzll(2 * capacity)) + 1) {}

uint64_t Repetitions::sum_of(uint64_t back) const {
  uint64_t sum = 0;
  for (uint64_t i = kGram; i-- > 0;) sum = sum * kBase + symbol(back + i);
  return sum;
}

void Repetitions::push(uint32_t symbol_now) {
  // Rolls: the oldest of the gram leaves with its power of the base (Karp and Rabin, 1987).
  sum_ = sum_ * kBase + symbol_now;
  if (pushed_ >= kGram) sum_ -= symbol(kGram - 1) * power(kBase, kGram);
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
  uint32_t& seen = last_seen(sum_);
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
  --shift_;
  for (uint64_t back = kept; back-- > kGram;)
    last_seen(sum_of(back - kGram)) = static_cast<uint32_t>(pushed_ - (back - kGram));
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
