// Which SMs the kernels that may run get. Kernels come in the order in which they choose: urgent
// streams first, then first come. Each takes what it demands or what is left of the SMs its stream
// may use, within its context's percentage; one that gets none waits.
//
// A kernel stays where it is if it can, and otherwise prefers idle SMs that no other kernel is
// confined to, so that an unconfined one does not stand in the way of a green context beside it.
#pragma once

#include <vector>

#include "model.h"

namespace tandem::softgpu {

// `kernels` are those whose turn it is, `runnable` those of them that may run; a place for each of
// the latter.
std::vector<SmSet> place_kernels(const DeviceInfo& device, const std::vector<Op*>& kernels,
                                 const std::vector<Op*>& runnable);

}  // namespace tandem::softgpu
