// How much memory this process holds on each device, and how much it may hold. holdings.h lists
// what holds it. Amounts change, and are published to the daemon, under an innermost lock of their
// own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm_layout.h"

namespace tandem::shim::memory {

inline constexpr uint32_t kMostDevices = 64;  // as many as NVML and the daemon can tell apart

// Takes `bytes` of the device's limit before the driver is asked; false when that would exceed the
// limit. Published at once, so that what the driver counts never exceeds what the process reports.
// give_back undoes it when the driver refuses. Allocators go through admission.h.
bool take(uint32_t device, uint64_t bytes, uint64_t limit);
void give_back(uint32_t device, uint64_t bytes);

// Adds what the driver has already taken, whatever the limit says.
void add(uint32_t device, uint64_t bytes);

// The program was told CUDA_ERROR_OUT_OF_MEMORY, or was given memory, which is published from here
// on.
void count_refused(shm::Refusal by);
void count_allocated();

uint64_t used_bytes();  // on all devices
uint64_t used_bytes(uint32_t device);
bool is_over_limit(uint32_t device);

// Per device; shm::kNoLimit = none; while the daemon is away, the last known one.
uint64_t limit_bytes();

// The same, or less while the daemon's lease is smaller.
uint64_t bound_bytes();

void limit_view(uint32_t device, size_t* free_bytes, size_t* total_bytes);

// The program said that an iteration has ended: what it holds now counts as permanent.
void end_iteration();

void publish();
void start_afresh();  // a forked child holds nothing

}  // namespace tandem::shim::memory
