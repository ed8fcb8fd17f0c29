// Measures a sample of the launches with a pair of timing events around each.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "durations.h"

namespace tandem::shim {

struct TimingPair;

// Identifies a stream, as in its slot.
struct TimedIn {
  uint64_t context, home;
  uint32_t device;
};

// Records the first event into `stream`. Null when no pair is available now; the duration is then
// due again at once. The helper thread later stores the result in the duration, unless its age has
// changed by then.
TimingPair* begin_timing(const TimedIn& where, CUstream stream, Duration* duration);

// Records the second event. `taken`: the driver took the launch between them.
void end_timing(TimingPair* pair, CUstream stream, bool taken);

// Reads the pairs that have finished; true while some are outstanding. Helper thread.
bool collect_timings();

// The pairs of a context, or of all contexts of a device, that may be about to go, and their events
// with them: nobody uses them from hold_timings to let_timings_go. One bit per pair, by its
// previous state.
struct HeldTimings {
  uint64_t free = 0, pending = 0;
};
// `device` < 0: the pairs of the context. Waits up to 10 ms for a thread that is inside a launch
// with one.
HeldTimings hold_timings(uint64_t context, int device);
// `are_gone`: the driver has destroyed the events.
void let_timings_go(const HeldTimings& held, bool are_gone);

void forget_all_timings();

}  // namespace tandem::shim
