// Restricts kernels to the memory they have a right to, in a process that uses several devices.
//
// Page protection applies to the whole process. So while a kernel runs, memory that its context has
// no right to is hidden from all threads, and touching it ends in the guard around the kernel.
// Rights are CUDA's: cuCtxEnablePeerAccess for cuMemAlloc, cuMemPoolSetAccess for pools and graphs'
// allocations, cuMemSetAccess for what cuMemMap has mapped. Bodies run one at a time. Copies run
// with nothing hidden, because they may cross between devices without any right.
#pragma once

#include "runtime.h"

namespace softgpu {

// All need the runtime's mutex. `hide_from` records in Runtime::hidden that something is hidden.
void hide_from(Runtime& rt, const Context& viewer);
// Call this after the kernel, and before anything else touches device memory.
void reveal_all(Runtime& rt);
void reveal(Runtime& rt, uintptr_t at);

}  // namespace softgpu
