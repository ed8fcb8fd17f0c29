// The attach clock as the shim reads it: CLOCK_MONOTONIC by way of the CPU's counter, or the software
// GPU's virtual clock through two functions of its driver.
//
// ticks() is what telemetry records carry; ns() converts. The pair (tick base, ns base) never moves
// after start, only the rate is refined, so a reader of the three published words is never torn.
#pragma once

#include <atomic>
#include <cstdint>

#include "always_inline.h"

namespace tandem {

class Clock {
 public:
  using NowFunction = uint64_t (*)();
  using WaitFunction = int (*)(uint64_t step_ns, uint64_t deadline_ns, int only_looked);

  // Exactly one of the two, once, before any other call. start_real measures for some 50 us.
  void start_real();
  void start_virtual(NowFunction now, WaitFunction wait);

  [[nodiscard]] bool is_virtual() const { return now_ != nullptr; }
  [[nodiscard]] uint64_t ticks() const;
  [[nodiscard]] uint64_t ns(uint64_t ticks) const;
  [[nodiscard]] uint64_t now_ns() const { return now_ ? now_() : ns(ticks()); }

  // Blocks the calling thread; the only way to wait on the virtual clock. True: a signal was handled on
  // this thread meanwhile, which on the virtual clock is not known.
  bool sleep_until_ns(uint64_t deadline_ns) const;

  // The same on the virtual clock only, for who looks again and again at what others write to memory: back
  // sooner when somebody has been at work, step_ns after the last look or later. softgpu_hooks.h.
  void wait_for_change(uint64_t step_ns, uint64_t deadline_ns, bool only_looked) const {
    wait_(step_ns, deadline_ns, only_looked);
  }

  // The same for who looks seldom: back at the first multiple of step_ns after somebody has been at work,
  // or between two of them once the deadline has come. So what somebody does is seen at a time that
  // depends on nothing else, also not on what made it look before, and a run repeats.
  void wait_for_step(uint64_t step_ns, uint64_t deadline_ns, bool only_looked) const {
    const uint64_t half_ns = step_ns / 2;
    const uint64_t end_ns = (deadline_ns + half_ns) / step_ns * step_ns + half_ns;  // not before it
    wait_(1, end_ns, only_looked);
    const uint64_t now = now_ns();
    if (now < end_ns) wait_(0, (now / step_ns + 1) * step_ns, true);
  }

  // Measures the counter's rate again over all the time since start. Helper thread only.
  void refine();

  [[nodiscard]] uint64_t ns_per_tick_q32() const { return rate_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t tick_base() const { return tick_base_; }
  [[nodiscard]] uint64_t base_ns() const { return base_ns_; }

 private:
  NowFunction now_ = nullptr;
  WaitFunction wait_ = nullptr;
  bool counter_is_ns_ = false;  // no usable CPU counter: ticks are CLOCK_MONOTONIC nanoseconds
  uint64_t tick_base_ = 0;
  uint64_t base_ns_ = 0;
  std::atomic<uint64_t> rate_{uint64_t{1} << 32};  // fixed point 32.32; a hint, relaxed everywhere
};

[[nodiscard]] uint64_t monotonic_ns();

// What the counter and the system's clock showed at one moment.
struct ClockPair {
  uint64_t ticks = 0;
  uint64_t ns = 0;
};

// A thread may be set aside between two reads, for longer than all that is measured here: of some tries
// the one that took the counter the least time.
template <class ReadTicks, class ReadNs>
ClockPair read_at_once(ReadTicks read_ticks, ReadNs read_ns) {
  constexpr int kTries = 5;
  ClockPair best;
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = read_ticks();
    const uint64_t ns = read_ns();
    const uint64_t after = read_ticks();
    const uint64_t took = after > before ? after - before : 0;  // 0: on another core, a little behind
    if (took >= least) continue;
    least = took;
    best = {before + took / 2, ns};
  }
  return best;
}

#if defined(__x86_64__)
inline uint64_t cpu_counter() { return __builtin_ia32_rdtsc(); }
#elif defined(__aarch64__)
inline uint64_t cpu_counter() {
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
}
#else
inline uint64_t cpu_counter() { return monotonic_ns(); }
#endif

ALWAYS_INLINE uint64_t Clock::ticks() const {
  if (__builtin_expect(now_ != nullptr, 0)) return now_();
  return __builtin_expect(counter_is_ns_, 0) ? monotonic_ns() : cpu_counter();
}

ALWAYS_INLINE uint64_t Clock::ns(uint64_t ticks) const {
  if (__builtin_expect(now_ != nullptr || counter_is_ns_, 0)) return ticks;
  __extension__ using Wide = unsigned __int128;
  // A counter read on another core may be a little behind the base: clamp, never wrap.
  const uint64_t passed = ticks > tick_base_ ? ticks - tick_base_ : 0;
  return base_ns_ + static_cast<uint64_t>((Wide{passed} * ns_per_tick_q32()) >> 32);
}

}  // namespace tandem
