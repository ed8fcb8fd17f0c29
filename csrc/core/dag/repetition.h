// Finds the period of a sequence of symbols as they come in.
//
// A lag d is followed while each symbol equals the one d places before. Once that has held for d
// symbols, the sequence has repeated itself with period d. Candidates for lags come from looking up
// the last few symbols: where the same few occurred last, d places back. Nested loops are found as
// well as the loops around them. Constant work and memory per symbol, whatever comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

class Repetitions {
 public:
  // Finds periods of up to `capacity` symbols; a power of two.
  explicit Repetitions(size_t capacity);

  void push(uint32_t symbol);
  // Like push, but looks for nothing; repetitions are reported again after catch_up. For a caller
  // that already knows what repeats.
  void remember(uint32_t symbol);
  // Processes what was only remembered, or the end of it if that is more than half the capacity.
  void catch_up();
  // Remembers twice as many symbols from now on.
  void grow();
  // The next symbol does not follow the last one: all repetitions end here.
  void interrupt();

  struct Found {
    uint64_t period = 0;   // symbols
    uint64_t covered = 0;  // symbols that the repetition explains, up to the last one: >= 2 periods
  };
  static constexpr size_t kMost = 16;
  // Reports all current repetitions, at most kMost, multiples of a period among them; returns how
  // many.
  size_t going_on(Found* found) const;

  uint64_t pushed() const { return pushed_; }
  size_t capacity() const { return mask_ + 1; }
  // The symbol `back` places before the last one; back < min(pushed, capacity).
  uint32_t symbol(uint64_t back) const { return history_[(pushed_ - 1 - back) & mask_]; }

 private:
  struct Lag {
    uint64_t distance;
    uint64_t matched;  // consecutive symbols that equal the one `distance` before
  };
  static constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;
  static constexpr uint64_t kBase = 0xd6e8feb86659fd93u;
  static constexpr size_t kGram = 6;  // this many equal symbols make a lag worth following

  // Look-ups happen this many symbols late, so that their random places are in the cache by then.
  static constexpr size_t kLate = 8;

  void look_up(uint64_t sum);
  void follow(uint64_t distance);
  uint32_t& last_seen(uint64_t sum) { return last_seen_[sum * kMix >> shift_]; }
  uint64_t sum_of(uint64_t back) const;  // of the kGram symbols that end that far back

  size_t mask_;
  std::vector<uint32_t> history_;
  // By hash of kGram symbols: the low half of pushed_ when they last occurred; 0 = never.
  std::vector<uint32_t> last_seen_;
  unsigned shift_;             // turns a 64-bit hash into a place there
  uint64_t sum_ = 0;           // of the last kGram symbols, times powers of kBase
  uint64_t late_[kLate] = {};  // sums not looked up yet, by number of the symbol
  uint64_t pushed_ = 0;
  uint64_t fresh_ = 0;   // symbols since the last interruption
  uint64_t unseen_ = 0;  // the last symbols, only remembered so far
  uint64_t ahead_ = 0;   // while catching up: those of them after pushed_
  Lag lags_[kMost];
  size_t lag_count_ = 0;
};

}  // namespace tandem::dag
