// Small allocations of a swappable job, packed into slabs, which are regions of one piece. The
// limit counts a slab as a whole, and not again what is in it.
//
// Inside a Use, from any thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "regions.h"

namespace tandem::shim::swap {

// Packs into a slab that has room, else into a new one. CUDA_ERROR_NOT_SUPPORTED: neither is
// available, so the driver has to allocate.
CUresult pack(CUdeviceptr* out, uint64_t bytes, uint64_t context, uint32_t device);
// CUDA_ERROR_NOT_FOUND: nothing packed begins there. Waits for the context's work, as cuMemFree
// does.
CUresult unpack(CUdeviceptr address);
CUresult unpack_unused(CUdeviceptr address);  // the same for one that no work can touch

// False: the address is in no slab. Else sets the range to the part that contains it; no bytes:
// none does.
bool find_packed(CUdeviceptr address, Range* range);

// Gives up the one empty slab that each device may keep so that alternating allocations and frees
// are fast.
void give_up_empty_slab(uint32_t device);
// Forgets slabs in which `keep` is false for everything, because their context is gone. Their
// regions stay.
void forget_slabs_unless(bool (*keep)(CUdeviceptr address));

void forget_slabs();  // a forked child has none

}  // namespace tandem::shim::swap
