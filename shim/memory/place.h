// Where a call acts: the current context, and the device that it or a stream belongs to.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim {

struct Place {
  uint64_t context = 0;
  uint32_t device = 0;
};

// The current context and its device; zeros without one, and then the driver refuses anyway.
Place place_now();

// The device whose pool a stream allocates from.
uint32_t device_of(CUstream stream);

// Contexts the program made itself; primary ones are those not known here.
void note_context(CUcontext context, CUdevice device);
// Whether anything is left on the device for memory to belong to.
bool has_contexts(uint32_t device);
// Threads remember the device of their context: a handle may come back on another one.
void forget_places();

}  // namespace tandem::shim
