// Memory and events that other processes use.
#pragma once

#include "api.h"

namespace softgpu {

// An interprocess event may have been recorded by anybody: the device process knows.
CUresult query_shared(Call& call, const Event& event);
CUresult synchronize_shared(Call& call, const Event& event);

// Puts a file behind linear memory, where there is none yet, so that others can map it: its bytes
// stay, and no body sees the change. False when the system refuses.
bool make_shareable(Runtime& rt, Range& range);

// Whether an inherited or received descriptor is memory of the software GPU, and of which device
// (visible to this process) and ledger entry. `kind` is the word of the name we gave it.
bool identify_memory(const Runtime& rt, int fd, const char* kind, int* device,
                     uint64_t* allocation);
// A file for memory, named so.
int make_memory_file(const Runtime& rt, const char* kind, int device, uint64_t allocation,
                     size_t bytes);

}  // namespace softgpu
