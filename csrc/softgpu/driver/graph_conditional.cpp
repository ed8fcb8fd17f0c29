#include "graph_conditional.h"

namespace softgpu {

CUresult set_conditional(Call&, GraphNode*, CUDA_CONDITIONAL_NODE_PARAMS*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace softgpu
