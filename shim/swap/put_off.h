// Frees of movable memory while a graph is captured. Memory that the GPU may still use cannot be unmapped,
// and waiting for the GPU would invalidate the capture. So it goes with a later cuMemFree in its context, or
// when an allocation finds no room that is not in a stream's order; until then it counts as held.
#pragma once

#include <cuda.h>

#include "holdings.h"

namespace tandem::shim::swap {

// Takes over what has been taken out of the table. By a call that is not in a stream's order only if the
// driver allows frees beside the captures there are; else its error.
CUresult put_off(const holdings::Entry& entry, bool in_order);
bool is_put_off(const holdings::Entry& entry);
bool is_put_off(uint64_t address);  // of its first byte
// Frees it, unless a graph is captured: what is of a context, which it waits for, or all (0). Whether it has.
bool free_what_was_put_off(uint64_t context = 0);

}  // namespace tandem::shim::swap
