// Where lanes that diverged at a branch reconverge: the branch's immediate post-dominator.
#pragma once

#include "program.h"

namespace softgpu::ptx {

// Fills in Instr::reconverge of every branch. The last instruction must end the function.
void find_reconvergence(Function& function);

}  // namespace softgpu::ptx
