// The length of the usual iteration: a mean that gives newer ones more weight.
#pragma once

#include <cstdint>

namespace tandem::dag {

class Usual {
 public:
  uint64_t ticks() const { return ticks_; }  // 0 = not known
  void forget() { ticks_ = 0; }

  // The current iteration has a launch for which only times on other SMs were known: neither it nor
  // the next one is averaged with earlier ones.
  void renew() { renewed_ = 2; }

  // Adds a completed iteration of the usual kind.
  void take(uint64_t ticks) {
    ticks_ = ticks_ && renewed_ == 0 ? (3 * ticks_ + ticks) / 4 : ticks;
    if (renewed_) --renewed_;
  }

 private:
  uint64_t ticks_ = 0;
  unsigned renewed_ = 0;  // iterations yet to be taken without averaging
};

}  // namespace tandem::dag
