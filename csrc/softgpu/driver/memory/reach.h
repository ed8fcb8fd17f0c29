// What a kernel reaches of the memory of a process that uses several devices.
//
// Pages have one protection for all of the process. So while a kernel runs, memory that its context
// has no right to is hidden from everybody, and touching it ends in the guard around the kernel.
// Rights are CUDA's: those of cuCtxEnablePeerAccess for cuMemAlloc, of cuMemPoolSetAccess for pools
// and graphs' allocations, of cuMemSetAccess for what cuMemMap has mapped. Bodies run one at a time;
// copies run with nothing hidden, for they may cross between devices without any right.
#pragma once

#include "runtime.h"

namespace softgpu {

// All with the runtime's mutex held. `hide_from` remembers that something is hidden.
void hide_from(Runtime& rt, const Context& viewer);
// After the kernel, and before anything but it touches device memory meanwhile.
void reveal_all(Runtime& rt);
void reveal(Runtime& rt, uintptr_t at);

}  // namespace softgpu
