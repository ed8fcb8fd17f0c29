// Asks the limit before the driver is asked. What pools and graphs only keep for later is given back
// to the device before anybody is refused, as the driver does when a device is full.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim {

// False: the program is told CUDA_ERROR_OUT_OF_MEMORY. True: taken; undone when the driver declines.
bool admit(uint32_t device, uint64_t bytes);
void undo_admission(uint32_t device, uint64_t bytes, CUresult why);

// For what needs no more than is reserved already: false while the device is over its limit.
bool admit_reuse(uint32_t device);

// Trims pools and graph memory of a device; what the driver says they hold is known afterwards.
void give_up_spare_memory(uint32_t device);

}  // namespace tandem::shim
