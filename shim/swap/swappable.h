// Which memory can be moved: linear memory of a process that the daemon has promised to move. All else
// stays on the device.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "channel.h"
#include "regions.h"

namespace tandem::shim::swap {

// Says so to who looks (use.h), once there is any. `channel` may be null.
bool is_wanted(const Channel* channel, uint64_t bytes);

// CUDA_ERROR_NOT_FOUND: it is the driver's to free.
CUresult release_if_ours(CUdeviceptr address);
// The same of what no work can touch any more.
CUresult release_unused(CUdeviceptr address);

// Of what region the address is; no bytes: of none.
Range range_at(CUdeviceptr address);

// What is no holding any more (holdings.h), because its context is gone.
void release_forgotten();

// What it keeps for allocations to come.
void give_up_spare(uint32_t device);

void start_afresh();  // a forked child has none of it

}  // namespace tandem::shim::swap
