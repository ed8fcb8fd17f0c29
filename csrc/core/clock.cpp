#include "clock.h"

#include <cerrno>
#include <ctime>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tandem {
namespace {

constexpr uint64_t kFirstMeasureNs = 50'000;

bool counter_is_usable() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  // Leaf 0x80000007, EDX bit 8: the counter runs at one rate on all cores, even while they sleep.
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
  return true;
#endif
}

}  // namespace

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void Clock::start_real() {
  counter_is_ns_ = !counter_is_usable();
  if (counter_is_ns_) {
    tick_base_ = base_ns_ = monotonic_ns();
    return;
  }
  const ClockPair start = read_at_once(cpu_counter, monotonic_ns);
  tick_base_ = start.ticks;
  base_ns_ = start.ns;
  while (monotonic_ns() - base_ns_ < kFirstMeasureNs) {
  }
  refine();
}

void Clock::start_virtual(NowFunction now, WaitFunction wait) {
  wait_ = wait;
  now_ = now;
  tick_base_ = base_ns_ = now();
}

void Clock::refine() {
  if (now_ || counter_is_ns_) return;
  const ClockPair now = read_at_once(cpu_counter, monotonic_ns);
  const uint64_t passed_ns = now.ns - base_ns_;
  const uint64_t passed_ticks = now.ticks - tick_base_;
  if (passed_ticks == 0) return;
  __extension__ using Wide = unsigned __int128;
  rate_.store(static_cast<uint64_t>((Wide{passed_ns} << 32) / passed_ticks),
              std::memory_order_relaxed);
}

bool Clock::sleep_until_ns(uint64_t deadline_ns) const {
  if (now_) {
    wait_(0, deadline_ns, 0);
    return false;
  }
  timespec until{};
  until.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000);
  until.tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000);
  bool interrupted = false;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR)
    interrupted = true;
  return interrupted;
}

}  // namespace tandem
