// Decides which memory can be moved: linear memory of a process that the daemon has promised to
// move. Everything else stays on the device.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "channel.h"
#include "regions.h"

namespace tandem::shim::swap {

// Whether this allocation can be moved. Sets g_on (use.h) once there is any such memory. `channel`
// may be null.
bool is_wanted(const Channel* channel, uint64_t bytes);

// CUDA_ERROR_NOT_FOUND: the driver has to free it.
CUresult release_if_ours(CUdeviceptr address);
// The same for memory that no work can touch any more.
CUresult release_unused(CUdeviceptr address);

// The region that contains the address; no bytes: there is none.
Range range_at(CUdeviceptr address);

// Releases what is no longer a holding (holdings.h) because its context is gone.
void release_forgotten();

// Gives up what is kept for future allocations.
void give_up_spare(uint32_t device);

void start_afresh();  // a forked child has none of it

}  // namespace tandem::shim::swap
