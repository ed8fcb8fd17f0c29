// Memory and events that other processes use.
#pragma once

#include "api.h"

namespace softgpu {

// Any process may have recorded an interprocess event last, so these ask the device process.
CUresult query_shared(Call& call, const Event& event);
CUresult synchronize_shared(Call& call, const Event& event);

// Puts a file behind linear memory that has none yet, so that other processes can map it. The
// contents stay, and no body sees the change. Returns false if the system refuses.
bool make_shareable(Runtime& rt, Range& range);

// Tells whether an inherited or received descriptor is memory of the software GPU, and if so which
// device (visible to this process) and ledger entry it belongs to. `kind` is a word in the file's
// name.
bool identify_memory(const Runtime& rt, int fd, const char* kind, int* device,
                     uint64_t* allocation);
// Creates a file for memory, with a name that identify_memory recognises.
int make_memory_file(const Runtime& rt, const char* kind, int device, uint64_t allocation,
                     size_t bytes);

}  // namespace softgpu
