// Physical memory of virtual memory management: it counts from cuMemCreate until nothing holds it,
// neither a handle (once for each creation and retention) nor a mapping.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tandem::shim::physical {

// Another process's memory does not count here: its bytes are 0.
void note_created(CUmemGenericAllocationHandle handle, uint32_t device, uint64_t bytes);
void note_imported(CUmemGenericAllocationHandle handle);
void note_retained(CUmemGenericAllocationHandle handle, CUdeviceptr within);

// Before cuMemRelease: returns the number of what the handle held, 0 if unknown. After: says
// whether it was released.
uint64_t begin_release(CUmemGenericAllocationHandle handle);
void end_release(CUmemGenericAllocationHandle handle, uint64_t number, bool released);

void note_mapped(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle);
void note_unmapped(CUdeviceptr at, uint64_t bytes);

// Used where the shim does not see the end of use (tiles of arrays): counted until the process
// ends.
void keep(CUmemGenericAllocationHandle handle);

}  // namespace tandem::shim::physical
