#include "wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace tandem {

// Neither call may change errno: the job is between two calls of its own.
bool futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_ns) {
  const int saved = errno;
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  const bool interrupted =
      syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0) != 0 && errno == EINTR;
  errno = saved;
  return interrupted;
}

void futex_wake_all(const std::atomic<uint32_t>& word) {
  const int saved = errno;
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = saved;
}

}  // namespace tandem
