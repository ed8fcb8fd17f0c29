// Where lanes that parted at a branch meet again: the immediate post-dominator of the branch.
#pragma once

#include "program.h"

namespace softgpu::ptx {

// Fills Instr::reconverge of every branch. The code must end with an instruction that ends it.
void find_reconvergence(Function& function);

}  // namespace softgpu::ptx
