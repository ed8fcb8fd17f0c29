// Where moved pages lie on the host: in memory that the daemon has made for this process, pinned once.
#pragma once

#include <cstdint>

namespace tandem::shim::swap {

// Takes the descriptor. A pool that is not sealed, or shorter than it says, is dropped. Helper.
void add_pool(int fd, uint64_t bytes);

// Pins what has come since, in the current context. Memory that cannot be pinned is only slower. Mover.
void pin_pools();

// `bytes` in one piece, in steps of shm::kSwapUnit; 0 = there is no such room. Inside a Use, or the
// mover.
uint64_t take_home(uint64_t bytes);
void give_home_back(uint64_t home, uint64_t bytes);

void forget_homes();  // a forked child has none

}  // namespace tandem::shim::swap
