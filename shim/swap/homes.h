// Where moved pages lie on the host: in memory that the daemon has made for this process, pinned once.
#pragma once

#include <cstdint>

#include "runs.h"

namespace tandem::shim::swap {

// Takes the descriptor. A pool that is not sealed, or shorter than it says, is dropped. Helper.
void add_pool(int fd, uint64_t bytes);

// Pins what has come since, in the current context. Memory that cannot be pinned is only slower. Mover.
void pin_pools();

// `bytes`, in steps of shm::kSwapUnit and in as many runs as it takes; 0 = so much is not free. Inside a
// Use, or the mover.
uint32_t take_home(uint64_t bytes);
void give_home_back(uint32_t home);

// The first run of a home, and what is left of it after that; 0 = nothing.
uint32_t look_at_home(uint32_t home, Run* out);

void forget_homes();  // a forked child has none

}  // namespace tandem::shim::swap
