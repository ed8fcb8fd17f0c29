// Memory that the device process has agreed to.
#pragma once

#include "api.h"

namespace softgpu {

// Ask the ledger for memory; what pools of the device do not use is given back first where it is
// short. Gives up the lock while it waits.
CUresult reserve_memory(Call& call, size_t bytes, int device, proto::MemKind kind,
                        uint64_t* allocation);

// Memory of the current context, as cuMemAlloc gives it.
CUresult allocate_linear(Call& call, size_t bytes, CUdeviceptr* out);

}  // namespace softgpu
