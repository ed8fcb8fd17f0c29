// Memory that can be moved, given to other processes (share.h): the owner's side.
#pragma once

#include <cuda.h>

#include <unistd.h>

namespace tandem::shim::swap {

// A handle of the allocation that the address is of, which stays on the device from then on.
// CUDA_ERROR_NOT_FOUND: it is none that can be moved. CUDA_ERROR_NOT_SUPPORTED: it cannot be shared.
// Inside a Use.
CUresult offer(CUdeviceptr address, CUipcMemHandle* out);

// Answers who asks, if it is of the same user. Helper, in each round.
void answer_openers(uid_t own = getuid());
// Readable when somebody asks; -1 = nothing was offered. Helper.
int openers_socket();
bool is_own_offer(const CUipcMemHandle& handle);

void forget_offers();  // a forked child has none

}  // namespace tandem::shim::swap
