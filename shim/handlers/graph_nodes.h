// Memory nodes of graphs.
#pragma once

#include <cuda.h>

#include <tuple>

#include "driver.h"
#include "graph_memory.h"

namespace tandem::shim::handlers {

template <class Call, class... A>
CUresult add_memory_node(A... arguments) {
  graph_memory::note_node();
  return Call::real(arguments...);
}

// The parameters are the last argument in every version of the call.
template <class Call, class... A>
CUresult add_node(A... arguments) {
  const CUgraphNodeParams* params = std::get<sizeof...(A) - 1>(std::tuple<A...>(arguments...));
  if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) graph_memory::note_node();
  return Call::real(arguments...);
}

template <class Call, class... A>
CUresult instantiate(CUgraphExec* exec, CUgraph graph, A... rest) {
  const CUresult result = Call::real(exec, graph, rest...);
  if (result == CUDA_SUCCESS && exec) graph_memory::note_instantiated(*exec, graph);
  return result;
}

template <class Call>
CUresult trim_graph_memory(CUdevice device) {
  const CUresult result = Call::real(device);
  if (result == CUDA_SUCCESS) graph_memory::refresh(static_cast<uint32_t>(device));
  return result;
}

}  // namespace tandem::shim::handlers
