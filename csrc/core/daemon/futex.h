// The daemon's futex calls. Words in memfds are shared between processes, so no call may use
// FUTEX_PRIVATE_FLAG. All waits have a deadline on CLOCK_MONOTONIC.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tandem::daemon {

struct FutexWaiter {
  const std::atomic<uint32_t>* word;
  uint32_t expected;
};
inline constexpr size_t kMaxFutexWaiters = 128;  // the kernel's FUTEX_WAITV_MAX

enum class Wake { kChanged, kTimeout, kInterrupted };

uint64_t monotonic_ns();

// Wakes every waiter of `word`, in any process that maps it.
void futex_wake_all(const std::atomic<uint32_t>* word);

// True if the kernel can wait for more than one word: from 5.16 on, unless a sandbox forbids it.
bool can_wait_for_several();

// Waits until some word differs from its expected value or is woken, or `deadline_ns` has passed.
// Ignores waiters beyond kMaxFutexWaiters. Pass several only if can_wait_for_several().
Wake futex_wait_any(const FutexWaiter* waiters, size_t count, uint64_t deadline_ns);

}  // namespace tandem::daemon
