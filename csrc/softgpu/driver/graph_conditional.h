// Conditional nodes: bodies that run, or not, or again, by a value that kernels set.
#pragma once

#include "api.h"
#include "graph.h"

namespace softgpu {

CUresult set_conditional(Call& call, GraphNode* node, CUDA_CONDITIONAL_NODE_PARAMS* params);

}  // namespace softgpu
