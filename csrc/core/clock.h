// The attach clock as the shim reads it: CLOCK_MONOTONIC by way of the CPU's counter, or the
// software GPU's virtual clock through two functions of its driver.
//
// Telemetry records carry ticks(); ns() converts them. The pair (tick base, ns base) never changes
// after the start and only the rate is refined, so a reader of the three published words never sees
// a torn combination.
#pragma once

#include <atomic>
#include <cstdint>

#include "always_inline.h"

namespace tandem {

class Clock {
 public:
  using NowFunction = uint64_t (*)();
  using WaitFunction = int (*)(uint64_t step_ns, uint64_t deadline_ns, int only_looked);

  // Call exactly one of the two, once, before anything else. start_real measures for some 50 us.
  void start_real();
  void start_virtual(NowFunction now, WaitFunction wait);

  [[nodiscard]] bool is_virtual() const { return now_ != nullptr; }
  [[nodiscard]] uint64_t ticks() const;
  [[nodiscard]] uint64_t ns(uint64_t ticks) const;
  [[nodiscard]] uint64_t now_ns() const { return now_ ? now_() : ns(ticks()); }

  // Blocks the calling thread; the only way to wait on the virtual clock. Returns true if this
  // thread handled a signal meanwhile; on the virtual clock that is not known.
  bool sleep_until_ns(uint64_t deadline_ns) const;

  // Like sleep_until_ns, on the virtual clock only, for a caller that polls memory which others
  // write: returns early once somebody has been active, but not before step_ns after the last look.
  // See softgpu_hooks.h.
  void wait_for_change(uint64_t step_ns, uint64_t deadline_ns, bool only_looked) const {
    wait_(step_ns, deadline_ns, only_looked);
  }

  // Like wait_for_change, for a caller that looks seldom: returns at the first multiple of step_ns
  // after somebody has been active, or, once the deadline has passed, halfway between two
  // multiples. So the time at which activity is seen depends on nothing else, not even on what
  // triggered the previous look, and a run is reproducible.
  void wait_for_step(uint64_t step_ns, uint64_t deadline_ns, bool only_looked) const {
    const uint64_t half_ns = step_ns / 2;
    const uint64_t end_ns = (deadline_ns + half_ns) / step_ns * step_ns + half_ns;  // not before it
    wait_(1, end_ns, only_looked);
    const uint64_t now = now_ns();
    if (now < end_ns) wait_(0, (now / step_ns + 1) * step_ns, true);
  }

  // Measures the counter's rate again, over the whole time since the start. Helper thread only.
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

// A simultaneous reading of the counter and the system's clock.
struct ClockPair {
  uint64_t ticks = 0;
  uint64_t ns = 0;
};

// A thread may be preempted between two reads for longer than the interval measured here, so this
// keeps the one of several tries during which the counter advanced least.
template <class ReadTicks, class ReadNs>
ClockPair read_at_once(ReadTicks read_ticks, ReadNs read_ns) {
  constexpr int kTries = 5;
  ClockPair best;
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = read_ticks();
    const uint64_t ns = read_ns();
    const uint64_t after = read_ticks();
    const uint64_t took = after > before ? after - before : 0;  // 0: read on a core slightly behind
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
  // The counter of another core may be slightly behind the base: clamp, never wrap.
  const uint64_t passed = ticks > tick_base_ ? ticks - tick_base_ : 0;
  return base_ns_ + static_cast<uint64_t>((Wide{passed} * ns_per_tick_q32()) >> 32);
}

}  // namespace tandem
