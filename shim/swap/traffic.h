// What the mover has copied in each direction so far, and how long that took.
#pragma once

#include <cstdint>

#include "shm_layout.h"

namespace tandem::shim::swap {

enum class Way : uint32_t { kOut, kIn };

// `ns`: the time since the previous copy of the same series ended, or since the series began. Waits
// for room, for threads and for the GPU's work fall between series and are not counted. Mover.
void count_copied(Way way, uint64_t bytes, uint64_t ns);

void publish_traffic(shm::StateSwap* shared);

void forget_traffic();  // a forked child has moved nothing

}  // namespace tandem::shim::swap
