// Measures a sample of the launches with a pair of timing events around each.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "durations.h"

namespace tandem::shim {

struct TimingPair;

// Of a stream, as in its slot.
struct TimedIn {
  uint64_t context, home;
  uint32_t device;
};

// Records the first event into `stream`; null when no pair is to be had now, and then the duration is due
// again at once. The helper thread reads the result into it later, unless it has got another age by then.
TimingPair* begin_timing(const TimedIn& where, CUstream stream, Duration* duration);

// Records the second. `taken`: the driver took the launch between them.
void end_timing(TimingPair* pair, CUstream stream, bool taken);

// Reads what has finished; true while some pair is still outstanding. Helper thread.
bool collect_timings();

// The pairs of a context, or of all contexts of a device, which may be about to go, and the events with
// it: nobody is in them from hold_timings to let_timings_go. One bit a pair, by what it was before.
struct HeldTimings {
  uint64_t free = 0, pending = 0;
};
// `device` < 0: those of the context. Waits up to 10 ms for a thread that is inside a launch with one.
HeldTimings hold_timings(uint64_t context, int device);
// `are_gone`: the events are the driver's no more.
void let_timings_go(const HeldTimings& held, bool are_gone);

void forget_all_timings();

}  // namespace tandem::shim
