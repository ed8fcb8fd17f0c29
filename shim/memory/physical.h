// Physical memory of the virtual memory management: counts from cuMemCreate until nothing holds it,
// neither a handle (as often as it was created and retained) nor a mapping.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tandem::shim::physical {

// Bytes of another process's memory are none of ours: 0.
void note_created(CUmemGenericAllocationHandle handle, uint32_t device, uint64_t bytes);
void note_imported(CUmemGenericAllocationHandle handle);
void note_retained(CUmemGenericAllocationHandle handle, CUdeviceptr within);

// Before cuMemRelease: the number of what it held, 0 if unknown. After: gone, or not.
uint64_t begin_release(CUmemGenericAllocationHandle handle);
void end_release(CUmemGenericAllocationHandle handle, uint64_t number, bool released);

void note_mapped(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle);
void note_unmapped(CUdeviceptr at, uint64_t bytes);

// Used where we do not see when it ends (tiles of arrays): counted until the process does.
void keep(CUmemGenericAllocationHandle handle);

}  // namespace tandem::shim::physical
