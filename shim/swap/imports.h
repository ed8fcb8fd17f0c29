// Memory of other processes that can be moved (share.h): the side of who opens it. There it stays, and
// so it does for us.
//
// From any thread.
#pragma once

#include <cuda.h>

#include "regions.h"

namespace tandem::shim::swap {

// Whether a Tandem process made the handle; the driver knows no such one.
bool is_shared_handle(const CUipcMemHandle& handle);

// Maps it in the current context, as cuIpcOpenMemHandle does: `range` is the allocation, wherever in it
// the handle was made. Waits for its owner for a limited time.
CUresult open_shared(Range* range, const CUipcMemHandle& handle, unsigned flags);
// CUDA_ERROR_NOT_FOUND: it is not of these. The last close waits for all work of the context.
CUresult close_shared(CUdeviceptr address);

// No bytes: of none.
Range shared_range_at(CUdeviceptr address);

// What is no holding any more (holdings.h), because its context is gone.
void close_forgotten();

void forget_imports();  // a forked child has none

}  // namespace tandem::shim::swap
