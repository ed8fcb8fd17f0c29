// Moves memory out to the host and back, on a thread of its own that lives as long as an order
// takes.
//
//   order: target below what is resident          order: target above
//     shut the door, wait for threads inside        make and map pieces, copy their bytes back
//     wait until the GPU has ended their work       all back: open the door
//     take a home for every piece that goes, or none goes
//     copy piece after piece, unmap, release
//
// In between, while nothing else moves, homes may go from memory to a file, or be given back when
// empty.
//
// A newer order ends an older one after the pieces in flight. Whatever fails, the bytes are on the
// device or at home, and the door stays shut until all are on the device.
#pragma once

#include <cstdint>

namespace tandem::shim::swap {

// The daemon wants at most `target` bytes of the regions on the device. Helper.
void order(uint32_t number, uint64_t target);

// The daemon has copied the pool with that number to a file, while the order `since` was the
// newest: if it still is, the file takes the pool's place. Takes the descriptor; -1 = none came,
// which is answered like a file that fails. Helper.
void order_to_file(uint32_t number, uint32_t since, uint64_t pool, int fd);

// The daemon wants the pool with that number back, if nothing is in it and `since` is still the
// newest order. Helper.
void order_to_give_back(uint32_t number, uint32_t since, uint64_t pool);

// The daemon is gone, or hangs: everything comes back as soon as there is room. Helper, repeatedly.
void bring_back();

// The process ends: nothing moves out any more. What is away comes back for threads that wait for
// it, as orders and bring_back say; that needs the helper.
void end_moving();
void forget_mover();  // a forked child has none

}  // namespace tandem::shim::swap
