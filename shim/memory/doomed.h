// Contexts that come and go, and the memory that goes with them: linear memory and arrays belong to
// the context they were made in; pools, physical memory and graph memory do not.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim::doomed {

// Around the destruction of a context that the program made, or of a device's primary one. Before:
// what belongs to it gets the number as its owner, so that nothing made meanwhile in a new context
// with the same handle is taken for its. After: it goes, or belongs to the context again.
uint64_t doom(CUcontext context);
uint64_t doom_primary(CUdevice device);
void finish(uint64_t number, CUcontext context, uint32_t device, bool destroyed);

// The device of a context that the program made; the current one's if it is not known.
uint32_t device_of(CUcontext context);
// cuCtxAttach, and whether cuCtxDetach destroys the context.
void note_attached();  // the current one
void note_detached(CUcontext context);
bool is_last_hold(CUcontext context);

}  // namespace tandem::shim::doomed
