// The driver API of nodes: adding them, and reading and changing what they do.
#include <utility>

#include "graph_conditional.h"
#include "graph_memory.h"
#include "graph_params.h"

namespace softgpu {
namespace {

struct NodePlace {  // where a new node goes
  CUgraph graph;
  const CUgraphNode* dependencies;
  const CUgraphEdgeData* data;
  size_t count;
};

template <class Fill>
CUresult add_node(CUgraphNode* out, const NodePlace& place, CUgraphNodeType type, Fill fill) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* graph = checked<Graph>(call.rt.graphs, place.graph);
  if (!graph || !out) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad =
          check_dependencies(call.rt, graph, place.dependencies, place.data, place.count, type)) {
    return bad;
  }
  if (const CUresult bad = may_hold(*graph, type)) return bad;
  GraphNode* node = make_node(call.rt, graph, type);
  if (const CUresult bad = fill(call, node)) {
    destroy_node(call.rt, node);
    return bad;
  }
  for (size_t i = 0; i < place.count; ++i) {
    connect(reinterpret_cast<GraphNode*>(place.dependencies[i]), node,
            place.data ? place.data[i] : CUgraphEdgeData{});
  }
  *out = reinterpret_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

// Calls `use` with a node of that type, for a getter or a setter.
template <class Use>
CUresult with_node(CUgraphNode handle, CUgraphNodeType type, const void* params, Use use) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* node = checked<GraphNode>(call.rt.graph_nodes, handle);
  if (!node || !params || node->type != type) return CUDA_ERROR_INVALID_VALUE;
  return use(call, node);
}

CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

CUDA_KERNEL_NODE_PARAMS_v1 narrow(const CUDA_KERNEL_NODE_PARAMS& p) {
  CUfunction func = p.func ? p.func : reinterpret_cast<CUfunction>(p.kern);
  return {func,        p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
          p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
}

CUresult add_any(CUgraphNode* out, const NodePlace& place, CUgraphNodeParams* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeParams& p = *params;
  if (p.reserved0[0] != 0 || p.reserved0[1] != 0 || p.reserved0[2] != 0 || p.reserved2 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return add_node(out, place, p.type, [&](Call& call, GraphNode* node) {
    switch (p.type) {
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc{p.alloc.poolProps, p.alloc.accessDescs,
                                         p.alloc.accessDescCount, p.alloc.bytesize, 0};
        const CUresult bad = set_alloc(call, node, &alloc);
        params->alloc.dptr = alloc.dptr;
        return bad;
      }
      case CU_GRAPH_NODE_TYPE_MEM_FREE: return set_free(call, node, p.free.dptr);
      case CU_GRAPH_NODE_TYPE_CONDITIONAL: return set_conditional(call, node, &params->conditional);
      default: return set_params(call, node, p);
    }
  });
}

CUresult set_any(CUgraphNode handle, const CUgraphNodeParams* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return with_node(handle, params->type, params, [&](Call& call, GraphNode* node) {
    return node->type == CU_GRAPH_NODE_TYPE_GRAPH ? CUDA_ERROR_NOT_SUPPORTED
                                                  : set_params(call, node, *params);
  });
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph,
                                    const CUgraphNode* dependencies, size_t count,
                                    const CUDA_KERNEL_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_KERNEL,
                  [&](Call& call, GraphNode* node) { return set_kernel(call, node, *params); });
}
SOFTGPU_API cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widen(*params);
  return cuGraphAddKernelNode_v2(out, graph, dependencies, count, &wide);
}
SOFTGPU_API cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, params, [&](Call&, GraphNode* node) {
    *params = kernel_params(node);
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, params, [&](Call&, GraphNode* node) {
    *params = narrow(kernel_params(node));
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphKernelNodeSetParams_v2(CUgraphNode handle,
                                          const CUDA_KERNEL_NODE_PARAMS* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, params,
                   [&](Call& call, GraphNode* node) { return set_kernel(call, node, *params); });
}
SOFTGPU_API cuGraphKernelNodeSetParams(CUgraphNode handle,
                                       const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widen(*params);
  return cuGraphKernelNodeSetParams_v2(handle, &wide);
}

SOFTGPU_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_MEMCPY3D* copy, CUcontext context) {
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  return add_node(
      out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_MEMCPY,
      [&](Call& call, GraphNode* node) { return set_copy(call, node, *copy, context); });
}
SOFTGPU_API cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* copy) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_MEMCPY, copy, [&](Call&, GraphNode* node) {
    *copy = node->copy;
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D* copy) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_MEMCPY, copy, [&](Call& call, GraphNode* node) {
    return set_copy(call, node, *copy, reinterpret_cast<CUcontext>(node->context));
  });
}

SOFTGPU_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_MEMSET_NODE_PARAMS* set,
                                 CUcontext context) {
  if (!set) return CUDA_ERROR_INVALID_VALUE;
  return add_node(
      out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_MEMSET,
      [&](Call& call, GraphNode* node) { return set_memset(call, node, *set, context); });
}
SOFTGPU_API cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* set) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_MEMSET, set, [&](Call&, GraphNode* node) {
    *set = node->memset;
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS* set) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_MEMSET, set, [&](Call& call, GraphNode* node) {
    return set_memset(call, node, *set, reinterpret_cast<CUcontext>(node->context));
  });
}

SOFTGPU_API cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                               size_t count, const CUDA_HOST_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return add_node(
      out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_HOST,
      [&](Call&, GraphNode* node) { return set_host(node, params->fn, params->userData); });
}
SOFTGPU_API cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_HOST, params, [&](Call&, GraphNode* node) {
    *params = {node->work.front().host_function, node->work.front().user};
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphHostNodeSetParams(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_HOST, params, [&](Call&, GraphNode* node) {
    return set_host(node, params->fn, params->userData);
  });
}

SOFTGPU_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph,
                                     const CUgraphNode* dependencies, size_t count, CUgraph child) {
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_GRAPH,
                  [&](Call& call, GraphNode* node) { return set_child(call, node, child, false); });
}
SOFTGPU_API cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_GRAPH, graph, [&](Call&, GraphNode* node) {
    *graph = reinterpret_cast<CUgraph>(node->inner.front().get());
    return CUDA_SUCCESS;
  });
}

SOFTGPU_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count) {
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_EMPTY,
                  [](Call&, GraphNode*) { return CUDA_SUCCESS; });
}

SOFTGPU_API cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph,
                                      const CUgraphNode* dependencies, size_t count,
                                      CUevent event) {
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                  [&](Call& call, GraphNode* node) { return set_event(call, node, event); });
}
SOFTGPU_API cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph,
                                    const CUgraphNode* dependencies, size_t count, CUevent event) {
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                  [&](Call& call, GraphNode* node) { return set_event(call, node, event); });
}

static CUresult get_event(CUgraphNode handle, CUgraphNodeType type, CUevent* event) {
  return with_node(handle, type, event, [&](Call&, GraphNode* node) {
    *event = reinterpret_cast<CUevent>(node->event);
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SOFTGPU_API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}
static CUresult put_event(CUgraphNode handle, CUgraphNodeType type, CUevent event) {
  return with_node(handle, type, event,
                   [&](Call& call, GraphNode* node) { return set_event(call, node, event); });
}
SOFTGPU_API cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return put_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}
SOFTGPU_API cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return put_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SOFTGPU_API cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph,
                                     const CUgraphNode* dependencies, size_t count,
                                     const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                  [&](Call& call, GraphNode* node) { return set_memops(call, node, *params); });
}
SOFTGPU_API cuGraphBatchMemOpNodeGetParams(CUgraphNode handle,
                                           CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params, [&](Call&, GraphNode* node) {
    *params = memop_params(node);
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphBatchMemOpNodeSetParams(CUgraphNode handle,
                                           const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params,
                   [&](Call& call, GraphNode* node) { return set_memops(call, node, *params); });
}

SOFTGPU_API cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                  [&](Call& call, GraphNode* node) { return set_alloc(call, node, params); });
}
SOFTGPU_API cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params, [&](Call&, GraphNode* node) {
    *params = alloc_params(node);
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUdeviceptr pointer) {
  return add_node(out, {graph, dependencies, nullptr, count}, CU_GRAPH_NODE_TYPE_MEM_FREE,
                  [&](Call& call, GraphNode* node) { return set_free(call, node, pointer); });
}
SOFTGPU_API cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* pointer) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, pointer, [&](Call&, GraphNode* node) {
    *pointer = node->freed;
    return CUDA_SUCCESS;
  });
}

SOFTGPU_API cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                           size_t count, CUgraphNodeParams* params) {
  return add_any(out, {graph, dependencies, nullptr, count}, params);
}
SOFTGPU_API cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              const CUgraphEdgeData* data, size_t count,
                              CUgraphNodeParams* params) {
  return add_any(out, {graph, dependencies, data, count}, params);
}
SOFTGPU_API cuGraphAddNode_v3(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              const CUgraphEdgeData* data, size_t count,
                              CUgraphNodeParams* params) {
  return add_any(out, {graph, dependencies, data, count}, params);
}
SOFTGPU_API cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
  return set_any(node, params);
}
SOFTGPU_API cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* params) {
  return set_any(node, params);
}
SOFTGPU_API cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams* params) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* node = checked<GraphNode>(call.rt.graph_nodes, handle);
  if (!node || !params) return CUDA_ERROR_INVALID_VALUE;
  *params = node_params(node);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                          CUkernelNodeAttrValue* value) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, [&](Call&, GraphNode* node) {
    if (!is_node_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
    const auto found = node->attributes.find(attribute);
    *value = found == node->attributes.end() ? CUkernelNodeAttrValue{} : found->second;
    return CUDA_SUCCESS;
  });
}
SOFTGPU_API cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                          const CUkernelNodeAttrValue* value) {
  return with_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, [&](Call& call, GraphNode* node) {
    if (!is_node_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
    const auto before = node->attributes;
    node->attributes[attribute] = *value;
    // Checks all attributes together.
    const CUresult bad = set_kernel(call, node, kernel_params(node));
    if (bad) node->attributes = before;
    return bad;
  });
}
SOFTGPU_API cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return with_node(to, CU_GRAPH_NODE_TYPE_KERNEL, from, [&](Call& call, GraphNode* node) {
    const auto* source = checked<GraphNode>(call.rt.graph_nodes, from);
    if (!source || source->type != node->type) return CUDA_ERROR_INVALID_VALUE;
    if (source->context != node->context) return CUDA_ERROR_INVALID_CONTEXT;
    node->attributes = source->attributes;
    return CUDA_SUCCESS;
  });
}
