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
  for (uint64_t i = std::min<uint64_t>(kGram, pushed_ - back); i-- > 0;)
    sum = sum * kBase + symbol(back + i);
  return sum;
}

void Repetitions::push(uint32_t symbol_now) {
  // Rolling hash: the gram's oldest symbol leaves with its power of the base (Karp and Rabin,
  // 1987).
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
  __builtin_prefetch(&last_seen(sum_), 1);
  const uint64_t sum = std::exchange(late_[pushed_ % kLate], sum_);
  if (fresh_ >= kGram + kLate) look_up(sum);
}

// Looks up the sum of the gram that ended kLate symbols ago.
void Repetitions::look_up(uint64_t sum) {
  uint32_t& seen = last_seen(sum);
  // Another gram may share the place: following it costs a slot until the next symbol differs.
  const auto then = static_cast<uint32_t>(pushed_ - kLate);
  const uint64_t distance = then - seen;
  const uint64_t reach = distance + kGram + kLate;
  if (seen && reach + ahead_ < capacity() && reach <= fresh_) follow(distance);
  seen = then;
}

void Repetitions::remember(uint32_t symbol_now) {
  history_[pushed_ & mask_] = symbol_now;
  ++pushed_;
  ++fresh_;
  ++unseen_;
}

// Goes back in the history and replays it. The older symbols are there unless later ones have
// overwritten them.
void Repetitions::catch_up() {
  const bool is_cut = unseen_ > capacity() / 2;
  ahead_ = is_cut ? capacity() / 2 : unseen_;
  unseen_ = 0;
  pushed_ -= ahead_;
  fresh_ = is_cut ? 0 : fresh_ - ahead_;
  const auto is_gone = [&](const Lag& lag) {
    return is_cut || lag.distance + kGram + ahead_ >= capacity();
  };
  lag_count_ = static_cast<size_t>(std::remove_if(lags_, lags_ + lag_count_, is_gone) - lags_);
  sum_ = sum_of(0);
  for (; ahead_ != 0; --ahead_) push(history_[pushed_ & mask_]);
}

void Repetitions::follow(uint64_t distance) {
  for (size_t i = 0; i < lag_count_; ++i) {
    if (lags_[i].distance == distance) return;
  }
  // Start a little further back, since the first matches may have been missed.
  const uint64_t known = std::min(fresh_, capacity() - ahead_) - distance;
  const uint64_t furthest = std::min<uint64_t>(known, 4 * kGram);
  uint64_t matched = 0;
  while (matched < furthest && symbol(matched) == symbol(matched + distance)) ++matched;
  if (matched < kGram) return;
  if (lag_count_ < kMost) {
    lags_[lag_count_++] = {distance, matched};
    return;
  }
  // The lag that has explained least makes room.
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
  for (uint64_t back = kept; back-- > kGram + kLate;)  // the others are still to be looked up
    last_seen(sum_of(back - kGram)) = static_cast<uint32_t>(pushed_ - (back - kGram));
}

void Repetitions::interrupt() {
  lag_count_ = 0;
  fresh_ = 0;
  if (std::exchange(unseen_, 0)) sum_ = sum_of(0);
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
