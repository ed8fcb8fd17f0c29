// Small allocations of a job that can be moved: packed into slabs, which are regions of one piece. The
// limit counts a slab as a whole, and what is in it not again.
//
// Inside a Use, from any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "regions.h"

namespace tandem::shim::swap {

// From a slab that has the room, else from a new one. CUDA_ERROR_NOT_SUPPORTED: neither can be had, ask
// the driver.
CUresult pack(CUdeviceptr* out, uint64_t bytes, uint64_t context, uint32_t device);
// CUDA_ERROR_NOT_FOUND: nothing packed begins there. Waits for the context's work, as cuMemFree does.
CUresult unpack(CUdeviceptr address);
CUresult unpack_unused(CUdeviceptr address);  // the same of one that no work can touch

// False: of no slab. Else of which part of it; no bytes: of none.
bool find_packed(CUdeviceptr address, Range* range);

// One slab of a device may stay while nothing is in it: allocations and frees in turn shall be quick.
void give_up_empty_slab(uint32_t device);
// Those without anything for which `keep` says yes, because their context is gone. Their regions stay.
void forget_slabs_unless(bool (*keep)(CUdeviceptr address));

void forget_slabs();  // a forked child has none

}  // namespace tandem::shim::swap
