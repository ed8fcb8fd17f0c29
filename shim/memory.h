// Device memory of this process: what each pointer holds, the total, and the limit.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tandem::shim::memory {

// Takes `bytes` of the limit before the driver is asked; false when that would exceed it. Undone by
// give_back when the driver refuses.
bool reserve(uint64_t bytes);
void give_back(uint64_t bytes);

// What was reserved now has an address; free'd addresses are forgotten first, since the driver may
// hand them out again at once. forget() returns the bytes, 0 for an address we never saw.
void remember(CUdeviceptr address, uint64_t bytes);
uint64_t forget(CUdeviceptr address);

// A free failed: the address is still allocated.
void restore(CUdeviceptr address, uint64_t bytes);

uint64_t used_bytes();
uint64_t limit_bytes();  // shm::kNoLimit = none; the last one known while the daemon is away
void limit_view(size_t* free_bytes, size_t* total_bytes);

// Fork: around it, so that the child gets a whole table; then the child starts from nothing.
void lock_for_fork();
void unlock_after_fork();
void start_afresh();

}  // namespace tandem::shim::memory
