// Checks the limit before the driver is asked. Before any request is refused, what pools and graphs
// only keep in reserve is given back to the device, as the driver does when a device is full.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim {

// False: the program is told CUDA_ERROR_OUT_OF_MEMORY. True: the bytes are taken; undo_admission
// returns them if the driver declines.
bool admit(uint32_t device, uint64_t bytes);
void undo_admission(uint32_t device, uint64_t bytes, CUresult why);

// For requests that need only what is reserved already: false while the device is over its limit.
bool admit_reuse(uint32_t device);

// Trims the pools and graph memory of a device and asks the driver how much they still hold.
void give_up_spare_memory(uint32_t device);

}  // namespace tandem::shim
