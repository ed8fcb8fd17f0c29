// Converts between what graph nodes do and the structs of cuda.h. The setters check everything
// first and change the node only if all is right. They serve the nodes of graphs and, through their
// clones, of executable graphs.
#pragma once

#include "api.h"
#include "graph.h"

namespace softgpu {

CUresult set_kernel(Call& call, GraphNode* node, const CUDA_KERNEL_NODE_PARAMS& params);
CUresult set_copy(Call& call, GraphNode* node, const CUDA_MEMCPY3D& copy, CUcontext context);
CUresult set_memset(Call& call, GraphNode* node, const CUDA_MEMSET_NODE_PARAMS& set,
                    CUcontext context);
CUresult set_host(GraphNode* node, CUhostFn function, void* user);
CUresult set_event(Call& call, GraphNode* node, CUevent event);
CUresult set_memops(Call& call, GraphNode* node, const CUDA_BATCH_MEM_OP_NODE_PARAMS& params);
// The child becomes a clone of `graph` or, if `move` is set, `graph` itself.
CUresult set_child(Call& call, GraphNode* node, CUgraph graph, bool move);
// Calls the setter for the node's type.
CUresult set_params(Call& call, GraphNode* node, const CUgraphNodeParams& params);

// The node owns what the pointers in the results point to.
CUDA_KERNEL_NODE_PARAMS kernel_params(GraphNode* node);
CUDA_BATCH_MEM_OP_NODE_PARAMS memop_params(GraphNode* node);
CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(GraphNode* node);
// The node's type must be one that CUgraphNodeParams can describe.
CUgraphNodeParams node_params(GraphNode* node);

// For nodes that a capture makes from work.
CUgraphNodeType node_type(const Work& work);
void take_work(GraphNode* node, const std::vector<Work>& work);

}  // namespace softgpu
