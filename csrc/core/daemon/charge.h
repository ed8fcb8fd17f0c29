// Who pays for an interval of GPU time.
//
// While one group is busy on a GPU the whole interval is its own: exclusive. While several are,
// how much each really got is not to be seen from outside: the interval is split evenly and kept
// apart as shared, an estimate. Inside a group its busy processes split what the group is charged.
// No nanosecond is lost or charged twice.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::daemon {

// A process that was busy during the interval, and what it is charged for it.
struct Claim {
  int gpu;
  int64_t group;
  uint64_t exclusive_ns;  // out
  uint64_t shared_ns;     // out
};

// Claims of one GPU must stand together, and within them those of one group.
void charge(uint64_t interval_ns, Claim* claims, size_t count);

}  // namespace tandem::daemon
