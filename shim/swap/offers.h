// Memory that can be moved, given to other processes (share.h): the owner's side.
#pragma once

#include <cuda.h>

#include <unistd.h>

namespace tandem::shim::swap {

// Makes a handle of the allocation that contains the address; the allocation stays on the device
// from then on. CUDA_ERROR_NOT_FOUND: it cannot be moved anyway. CUDA_ERROR_NOT_SUPPORTED: it
// cannot be shared. Inside a Use.
CUresult offer(CUdeviceptr address, CUipcMemHandle* out);

// Answers the processes that ask, if they belong to the same user. Helper, in each round.
void answer_openers(uid_t own = getuid());
// Readable when a process asks; -1 = nothing was offered. Helper.
int openers_socket();
bool is_own_offer(const CUipcMemHandle& handle);

void forget_offers();  // a forked child has none

}  // namespace tandem::shim::swap
