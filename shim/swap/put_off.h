// Frees of movable memory while a graph is captured. Memory that the GPU may still use cannot be
// unmapped, and waiting for the GPU would invalidate the capture. So the memory is freed by a later
// cuMemFree in its context, or when an allocation that is not in stream order finds no room; until
// then it counts as held.
#pragma once

#include <cuda.h>

#include "holdings.h"

namespace tandem::shim::swap {

// Takes over an entry that was removed from the table. For a call that is not in stream order, only
// if the driver allows frees beside the captures in progress; otherwise returns the driver's error.
CUresult put_off(const holdings::Entry& entry, bool in_order);
bool is_put_off(const holdings::Entry& entry);
bool is_put_off(uint64_t address);  // of its first byte
// Unless a graph is captured: waits for the context and frees what belongs to it, or all (0).
// Returns whether it freed anything.
bool free_what_was_put_off(uint64_t context = 0);

}  // namespace tandem::shim::swap
