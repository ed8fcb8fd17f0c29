// Finds the period of a sequence of symbols while it comes in.
//
// A lag d is followed while each symbol equals the one d places before. When that has held for d
// symbols the sequence has repeated itself with period d. Lags to follow come from what the last
// few symbols were preceded by: where the same few stood last, d places back. Loops inside loops are
// found as well as those around them. Constant work and memory for each symbol, whatever comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

class Repetitions {
 public:
  // Periods up to `capacity` symbols are found; a power of two.
  explicit Repetitions(size_t capacity);

  void push(uint32_t symbol);
  // Remembers twice as much from now on.
  void grow();
  // What comes next did not follow what came last: all repetitions end here.
  void interrupt();

  struct Found {
    uint64_t period = 0;   // symbols
    uint64_t covered = 0;  // symbols that the repetition explains, up to the last one: >= 2 periods
  };
  static constexpr size_t kMost = 16;
  // All that go on now, at most kMost, multiples of a period among them; how many.
  size_t going_on(Found* found) const;

  uint64_t pushed() const { return pushed_; }
  size_t capacity() const { return mask_ + 1; }
  // The symbol `back` places before the last one; back < min(pushed, capacity).
  uint32_t symbol(uint64_t back) const { return history_[(pushed_ - 1 - back) & mask_]; }

 private:
  struct Lag {
    uint64_t distance;
    uint64_t matched;  // symbols in a row that equal the one `distance` before
  };
  static constexpr size_t kGram = 6;  // so many equal symbols make a lag worth following

  void follow(uint64_t distance);
  uint32_t& last_seen(uint64_t back);  // of the symbols that end so far back

  size_t mask_;
  std::vector<uint32_t> history_;
  // By hash of the last kGram symbols: the low half of pushed_ then; 0 = never.
  std::vector<uint32_t> last_seen_;
  uint64_t pushed_ = 0;
  uint64_t fresh_ = 0;  // symbols since the last interruption
  Lag lags_[kMost];
  size_t lag_count_ = 0;
};

}  // namespace tandem::dag
