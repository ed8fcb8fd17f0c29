// Memory of other processes that can be moved (share.h), from the importer's side. The owner keeps
// it on the device, so it stays for the importer too.
//
// From any thread.
#pragma once

#include <cuda.h>

#include "regions.h"

namespace tandem::shim::swap {

// Whether a Tandem process made the handle; the driver does not know such a handle.
bool is_shared_handle(const CUipcMemHandle& handle);

// Maps it in the current context, as cuIpcOpenMemHandle does: `range` is the allocation, wherever
// in it the handle was made. Waits for the owner for a limited time.
CUresult open_shared(Range* range, const CUipcMemHandle& handle, unsigned flags);
// CUDA_ERROR_NOT_FOUND: not an import of this kind. The last close waits for all work of the
// context.
CUresult close_shared(CUdeviceptr address);

// No bytes: the address is in none.
Range shared_range_at(CUdeviceptr address);

// Closes imports that are no longer holdings (holdings.h) because their context is gone.
void close_forgotten();

void forget_imports();  // a forked child has none

}  // namespace tandem::shim::swap
