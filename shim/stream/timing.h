// Measures a sample of the launches with a pair of timing events around each.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "durations.h"

namespace tandem::shim {

struct TimingPair;

// Records the first event into `stream` of `context`; null when no pair is to be had now, and then the
// duration is due again at once. The helper thread reads the result into it later, unless it has got
// another age by then.
TimingPair* begin_timing(uint64_t context, CUstream stream, Duration* duration);

// Records the second. `taken`: the driver took the launch between them.
void end_timing(TimingPair* pair, CUstream stream, bool taken);

// Reads what has finished; true while some pair is still outstanding. Helper thread.
bool collect_timings();

// The context is about to go: its events with it. Returns when the helper is out of them.
void forget_timings(uint64_t context);
void forget_all_timings();

}  // namespace tandem::shim
