// Where a call acts: the current context, and the device to which it or a stream belongs.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim {

struct Place {
  uint64_t context = 0;
  uint32_t device = 0;
};

// The current context and its device; zeros without one, in which case the driver refuses the call
// anyway.
Place place_now();

// The device whose pool a stream allocates from.
uint32_t device_of(CUstream stream);

// Records contexts that the program made itself; any context not known here is a primary one.
void note_context(CUcontext context, CUdevice device);
// Whether the device has any context left to which memory can belong.
bool has_contexts(uint32_t device);
// Threads cache the device of their context; this drops those caches, as a handle may come back on
// another device.
void forget_places();

}  // namespace tandem::shim
