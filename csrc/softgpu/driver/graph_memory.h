// Memory that graphs allocate: nodes that allocate and free, and what backs them.
#pragma once

#include "api.h"
#include "graph.h"

namespace softgpu {

struct GraphExec;

CUresult set_alloc(Call& call, GraphNode* node, CUDA_MEM_ALLOC_NODE_PARAMS* params);
CUresult set_free(Call& call, GraphNode* node, CUdeviceptr pointer);

// Before a launch: its allocations have their pages. Lets go of the mutex where it has to ask.
CUresult back_with_memory(Call& call, GraphExec& exec, Context* context);
// The same for an upload, which allocates nothing yet.
CUresult upload_memory(Call& call, GraphExec& exec, Context* context);
void release_graph_memory(GraphExec& exec);

}  // namespace softgpu
