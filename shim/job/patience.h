// How long to wait for an answer on a socket.
#pragma once

#include <poll.h>

#include <cerrno>
#include <cstdint>

#include "channel.h"
#include "clock.h"
#include "driver.h"

namespace tandem::shim {

// On the virtual clock, whoever answers does so in one of its rounds. So we look after each
// millisecond of virtual time, which keeps the run reproducible; an answerer on another clock gets
// real time after that.
class Patience {
 public:
  explicit Patience(int timeout_ms)
      : give_up_ns_(monotonic_ns() + static_cast<uint64_t>(timeout_ms) * 1'000'000),
        rounds_(g_clock.is_virtual() ? timeout_ms : 0) {}

  // Waits until there is something to read, or until a look may be worthwhile. False: the time is
  // up.
  bool wait(int socket) {
    if (rounds_ > 0) {
      --rounds_;
      g_clock.sleep_until_ns(g_clock.now_ns() + 1'000'000);
      return true;
    }
    const uint64_t now = monotonic_ns();
    if (now >= give_up_ns_) return false;
    pollfd wanted{socket, POLLIN, 0};
    const int left_ms = static_cast<int>((give_up_ns_ - now) / 1'000'000) + 1;
    const bool leave_clock = g_clock.is_virtual() && g_driver.softgpu_wait_begin;
    if (leave_clock) g_driver.softgpu_wait_begin();
    const int ready = poll(&wanted, 1, left_ms);
    const bool failed = ready < 0 && errno != EINTR;
    if (leave_clock) g_driver.softgpu_wait_end();
    return !failed;
  }

 private:
  uint64_t give_up_ns_;
  int rounds_;
};

}  // namespace tandem::shim
