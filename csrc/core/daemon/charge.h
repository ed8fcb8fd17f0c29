// Who pays for an interval of GPU time.
//
// While one group is busy on a GPU the whole interval is its own: exclusive. While several are, how
// much each really got is not to be seen from outside: the interval is split and kept apart as
// shared, an estimate. It is split by the SMs that each takes, where that is told of all of them,
// else evenly. Inside a group its busy processes split what the group is charged. No nanosecond is
// lost or charged twice.
//
// What an even split would have come to is told as well: how long somebody has a turn is counted in
// time, whatever he takes of the GPU meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::daemon {

// A process that was busy during the interval, and what it is charged for it.
struct Claim {
  int gpu = 0;
  int64_t group = 0;
  uint32_t sms = 0;       // that its work takes; 0 = not told
  uint32_t most_sms = 0;  // that its group's work takes at most, however many processes that has
  uint64_t exclusive_ns = 0;  // out
  uint64_t shared_ns = 0;     // out
  uint64_t even_ns = 0;       // out: the same, had it been split evenly among the groups
};

// Claims of one GPU must stand together, and within them those of one group.
void charge(uint64_t interval_ns, Claim* claims, size_t count);

}  // namespace tandem::daemon
