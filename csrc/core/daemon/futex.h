// The futex calls of the daemon's side. Words in memfds are shared between processes, so none of
// them may use FUTEX_PRIVATE_FLAG; all waits have a deadline on CLOCK_MONOTONIC.
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

// Whether the kernel lets anybody wait for more than one word: from 5.16 on, if no sandbox forbids it.
bool can_wait_for_several();

// Waits until some word differs from its expected value, or is woken, or `deadline_ns` has passed.
// Waiters beyond kMaxFutexWaiters are not looked at. Several only where one can wait for them.
Wake futex_wait_any(const FutexWaiter* waiters, size_t count, uint64_t deadline_ns);

}  // namespace tandem::daemon
