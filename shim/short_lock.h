// A lock to be held for a few instructions at a time. Uncontended, it costs one locked operation,
// where a mutex costs two plus the calls. The price: its release is a plain store, which may miss a
// waiter that is just going to sleep. So a sleeping waiter looks again after a slice.
#pragma once

#include <atomic>
#include <cstdint>

#include "wait.h"

namespace tandem::shim {

class ShortLock {
 public:
  void lock() {
    // Acquire: makes visible what earlier holders did; pairs with the release in unlock.
    if (__builtin_expect(held_.exchange(1, std::memory_order_acquire) != 0, 0)) wait();
  }

  void unlock() {
    held_.store(0, std::memory_order_release);
    if (__builtin_expect(sleepers_.load(std::memory_order_relaxed) != 0, 0)) futex_wake_all(held_);
  }

  void start_afresh() {
    held_.store(0, std::memory_order_release);
  }  // a forked child has no other thread

 private:
  static constexpr uint32_t kSpins = 200;
  static constexpr uint64_t kSliceNs = 200'000;

  __attribute__((cold, noinline)) void wait() {
    for (uint32_t spins = 0;; ++spins) {
      if (held_.load(std::memory_order_relaxed) == 0 &&
          held_.exchange(1, std::memory_order_acquire) == 0) {
        return;
      }
      if (spins < kSpins) {
        cpu_pause();
        continue;
      }
      sleepers_.fetch_add(1, std::memory_order_relaxed);
      futex_wait(held_, 1, kSliceNs);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  std::atomic<uint32_t> held_{0};  // futex word
  std::atomic<uint32_t> sleepers_{0};
};

class HoldsShortLock {
 public:
  explicit HoldsShortLock(ShortLock* lock) : lock_(lock) { lock_->lock(); }
  ~HoldsShortLock() { lock_->unlock(); }
  HoldsShortLock(const HoldsShortLock&) = delete;
  HoldsShortLock& operator=(const HoldsShortLock&) = delete;

 private:
  ShortLock* lock_;
};

}  // namespace tandem::shim
