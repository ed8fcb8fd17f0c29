// Decides which SMs the runnable kernels get. Kernels choose in the order in which they are passed:
// by stream priority, then first come, first served. Each takes what it demands, or what is left of
// the SMs its stream may use, within its context's percentage; a kernel that gets none waits.
//
// A kernel stays where it is if it can. Otherwise it prefers idle SMs that no other kernel is
// confined to, so that an unconfined kernel does not block a green context beside it.
#pragma once

#include <vector>

#include "model.h"

namespace tandem::softgpu {

// `kernels` are those whose turn it is, `runnable` those of them that may run now. Returns a place
// for each of the latter.
std::vector<SmSet> place_kernels(const DeviceInfo& device, const std::vector<Op*>& kernels,
                                 const std::vector<Op*>& runnable);

}  // namespace tandem::softgpu
