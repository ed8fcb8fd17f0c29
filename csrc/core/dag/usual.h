// How long the usual iteration is: a mean in which newer ones count for more.
#pragma once

#include <cstdint>

namespace tandem::dag {

class Usual {
 public:
  uint64_t ticks() const { return ticks_; }  // 0 = not known
  void forget() { ticks_ = 0; }

  // The iteration under way has a launch for which times on other SMs were all that was known: neither
  // it nor the next one is averaged with what was before.
  void renew() { renewed_ = 2; }

  // An iteration is over, and is one of the usual.
  void take(uint64_t ticks) {
    ticks_ = ticks_ && renewed_ == 0 ? (3 * ticks_ + ticks) / 4 : ticks;
    if (renewed_) --renewed_;
  }

 private:
  uint64_t ticks_ = 0;
  unsigned renewed_ = 0;  // of the iterations to come, so many
};

}  // namespace tandem::dag
