// Who adds to a stream has it to itself: one locked operation while nobody else wants it. Its holder may be
// inside the driver for long, so who waits sleeps, on whatever clock there is.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "channel.h"
#include "wait.h"

namespace tandem::shim::partition {

class StreamLock {
 public:
  // Acquire: what the last holder did with the stream is seen; pairs with the release in unlock.
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void lock() {
    if (__builtin_expect(!try_lock(), 0)) wait();
  }
  void unlock() { held_.store(false, std::memory_order_release); }
  void start_afresh() { held_.store(false, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kSpins = 200;
  static constexpr uint32_t kSleepUs = 20;

  __attribute__((cold, noinline)) void wait() {
    for (uint32_t spins = 0;; ++spins) {
      if (!held_.load(std::memory_order_relaxed) && try_lock()) return;
      if (spins < kSpins) cpu_pause();
      // On the virtual clock a thread that waits must say so, or no time passes for the holder either.
      else if (g_clock.is_virtual()) g_clock.sleep_until_ns(g_clock.now_ns() + kSleepUs * 1000);
      else usleep(kSleepUs);
    }
  }

  std::atomic<bool> held_{false};
};

}  // namespace tandem::shim::partition
