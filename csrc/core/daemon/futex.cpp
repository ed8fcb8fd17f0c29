#include "daemon/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace tandem::daemon {
namespace {

constexpr long kFutexWaitvCall = 449;  // the same number on every architecture
constexpr uint32_t kFutex32 = 2;

// struct futex_waitv of <linux/futex.h>, which kernel headers before 5.16 lack.
struct WaitvEntry {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};

timespec to_timespec(uint64_t ns) {
  timespec out;
  out.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  out.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return out;
}

Wake outcome(long result) {
  if (result >= 0 || errno == EAGAIN) return Wake::kChanged;
  return errno == EINTR ? Wake::kInterrupted : Wake::kTimeout;
}

// FUTEX_WAIT_BITSET takes an absolute deadline, plain FUTEX_WAIT a duration.
Wake wait_one(const FutexWaiter& waiter, const timespec& deadline) {
  return outcome(syscall(SYS_futex, waiter.word, FUTEX_WAIT_BITSET, waiter.expected, &deadline,
                         nullptr, FUTEX_BITSET_MATCH_ANY));
}

}  // namespace

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void futex_wake_all(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool can_wait_for_several() {
  // A kernel that has the call rejects an empty list with EINVAL.
  return syscall(kFutexWaitvCall, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC) < 0 && errno == EINVAL;
}

Wake futex_wait_any(const FutexWaiter* waiters, size_t count, uint64_t deadline_ns) {
  const timespec deadline = to_timespec(deadline_ns);
  if (count == 1) return wait_one(waiters[0], deadline);
  WaitvEntry entries[kMaxFutexWaiters];
  if (count > kMaxFutexWaiters) count = kMaxFutexWaiters;
  for (size_t i = 0; i < count; ++i) {
    entries[i] = {waiters[i].expected, reinterpret_cast<uint64_t>(waiters[i].word), kFutex32, 0};
  }
  return outcome(syscall(kFutexWaitvCall, entries, count, 0, &deadline, CLOCK_MONOTONIC));
}

}  // namespace tandem::daemon
