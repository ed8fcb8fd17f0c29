// Who pays for an interval of GPU time.
//
// While only one group is busy on a GPU, the whole interval is its own: exclusive. While several
// are, nobody can see from outside how much each really got: the interval is split and counted
// separately as shared, an estimate. It is split by the SMs that each group takes if they are known
// for all of them, else evenly. Within a group, the busy processes split the group's charge evenly.
// No nanosecond is lost or charged twice.
//
// The shares of an even split are reported as well: the length of a turn is counted in time,
// however much of the GPU its holder uses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::daemon {

// A process that was busy during the interval, and its charge for it.
struct Claim {
  int gpu = 0;
  int64_t group = 0;
  uint32_t sms = 0;       // SMs that its work takes; 0 = not told
  uint32_t most_sms = 0;  // SMs that its group's work takes at most, with however many processes
  uint64_t exclusive_ns = 0;  // out
  uint64_t shared_ns = 0;     // out
  uint64_t even_ns = 0;       // out: its share had the interval been split evenly among the groups
};

// The claims of one GPU must be adjacent, and among them those of one group.
void charge(uint64_t interval_ns, Claim* claims, size_t count);

}  // namespace tandem::daemon
