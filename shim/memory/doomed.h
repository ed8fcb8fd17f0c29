// Contexts that come and go, and the memory that goes with them: linear memory and arrays belong to
// the context in which they were made; pools, physical memory and graph memory do not.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim::doomed {

// Bracket the destruction of a context that the program made, or of a device's primary one. Before:
// what belongs to the context gets the returned number as its owner, so that nothing made meanwhile
// in a new context with the same handle is taken to be its. After: that memory is gone, or belongs
// to the context again.
uint64_t doom(CUcontext context);
uint64_t doom_primary(CUdevice device);
void finish(uint64_t number, CUcontext context, uint32_t device, bool destroyed);

// The device of a context that the program made; the current context's if it is not known.
uint32_t device_of(CUcontext context);
// cuCtxAttach, and whether a cuCtxDetach destroys the context.
void note_attached();  // the current one
void note_detached(CUcontext context);
bool is_last_hold(CUcontext context);

}  // namespace tandem::shim::doomed
