// New parameters for nodes of executable graphs: what may change, and the driver API for it.
#include <cstring>

#include "api.h"
#include "array.h"
#include "graph_exec.h"
#include "graph_params.h"
#include "green_context.h"
#include "module.h"
#include "work.h"

namespace softgpu {
namespace {

// Changes a node of an exec, which then takes part in launches as before.
template <class Change>
CUresult change(CUgraphExec handle, CUgraphNode node, CUgraphNodeType type, const void* params,
                Change apply) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto found = call.rt.graph_execs.find(handle);
  if (found == call.rt.graph_execs.end() || !params) return CUDA_ERROR_INVALID_VALUE;
  GraphNode* ours = find_twin(*found->second, node, type);
  return ours ? apply(call, ours) : CUDA_ERROR_INVALID_VALUE;
}

CUresult change_kernel(Call& call, GraphNode* ours, const CUDA_KERNEL_NODE_PARAMS& params) {
  const void* handle = params.func ? static_cast<const void*>(params.func) : params.kern;
  if (!params.func && params.ctx && reinterpret_cast<Context*>(params.ctx) != ours->context) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* home = home_of(ours->context);
  Function* function = nullptr;
  if (resolve_function(call.rt, home, handle, &function)) return CUDA_ERROR_INVALID_VALUE;
  if (function->module->context != home) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS same_context = params;
  same_context.func = reinterpret_cast<CUfunction>(function);
  return set_kernel(call, ours, same_context);
}

// An operand's memory must keep its device, context and kind; only the address may change.
bool same_home(Runtime& rt, const void* before, const void* after) {
  const Range* a = find_range(rt, reinterpret_cast<uintptr_t>(before), 1);
  const Range* b = find_range(rt, reinterpret_cast<uintptr_t>(after), 1);
  if (!a || !b) return a == b;
  return a->device == b->device && a->context == b->context && a->kind == b->kind;
}

struct End {  // one end of a copy
  const void* address;
  const Array* array;
};

bool same_home(Runtime& rt, const End& before, const End& after) {
  if (!before.array && !after.array) return same_home(rt, before.address, after.address);
  const auto* a = checked<Array>(rt.arrays, before.array);  // it may have been destroyed since
  return a && after.array && a->context == after.array->context;
}

CUresult change_copy(Call& call, GraphNode* ours, const CUDA_MEMCPY3D& copy, CUcontext context) {
  if (context && reinterpret_cast<Context*>(context) != ours->context) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUDA_MEMCPY3D& before = ours->copy;
  if (copy.Height != 1 || copy.Depth != 1 || before.Height != 1 || before.Depth != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work is;
  if (const CUresult bad = copy_work(call.rt, copy, &is)) return bad;
  const Work& was = ours->work.front();
  const End from{was.source, was.source_array}, to{was.destination, was.destination_array};
  if (was.kind != is.kind || !same_home(call.rt, from, {is.source, is.source_array}) ||
      !same_home(call.rt, to, {is.destination, is.destination_array})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return set_copy(call, ours, copy, reinterpret_cast<CUcontext>(ours->context));
}

CUresult change_memset(Call& call, GraphNode* ours, const CUDA_MEMSET_NODE_PARAMS& set,
                       CUcontext context) {
  if (context && reinterpret_cast<Context*>(context) != ours->context) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUDA_MEMSET_NODE_PARAMS& before = ours->memset;
  if (set.height != before.height) return CUDA_ERROR_INVALID_VALUE;
  if (set.height > 1 && (set.width != before.width || set.elementSize != before.elementSize ||
                         set.pitch != before.pitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!same_home(call.rt, reinterpret_cast<void*>(before.dst), reinterpret_cast<void*>(set.dst))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return set_memset(call, ours, set, reinterpret_cast<CUcontext>(ours->context));
}

CUresult change_memops(Call& call, GraphNode* ours, const CUDA_BATCH_MEM_OP_NODE_PARAMS& params) {
  if (params.count != ours->memops.size() || !params.paramArray) return CUDA_ERROR_INVALID_VALUE;
  if (params.ctx && reinterpret_cast<Context*>(params.ctx) != ours->context) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < params.count; ++i) {
    if (params.paramArray[i].operation != ours->memops[i].operation) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return set_memops(call, ours, params);
}

CUresult change_event(Call& call, GraphNode* ours, CUevent handle) {
  const auto* event = checked<Event>(call.rt.events, handle);
  const bool records = ours->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  if (!event || (records && event->context != ours->context)) return CUDA_ERROR_INVALID_VALUE;
  Context* lane = ours->context;  // a wait's context may change, but not its place in the plan
  const CUresult result = set_event(call, ours, handle);
  ours->context = lane;
  return result;
}

CUresult change_any(Call& call, GraphExec& exec, GraphNode* ours, const CUgraphNodeParams& p) {
  switch (ours->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      memcpy(&kernel, &p.kernel, sizeof kernel);
      return change_kernel(call, ours, kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return change_copy(call, ours, p.memcpy.copyParams, p.memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& set = p.memset;
      return change_memset(call, ours,
                           {set.dst, set.pitch, set.value, set.elementSize, set.width, set.height},
                           set.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: return set_host(ours, p.host.fn, p.host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const auto* child = checked<Graph>(call.rt.graphs, p.graph.graph);
      return child ? update_child(exec, ours, *child) : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return change_event(call, ours, p.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return change_event(call, ours, p.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return change_memops(call, ours,
                           {p.memOp.ctx, p.memOp.count, p.memOp.paramArray, p.memOp.flags});
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                              const CUDA_KERNEL_NODE_PARAMS* params) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, params,
                [&](Call& call, GraphNode* ours) { return change_kernel(call, ours, *params); });
}
SOFTGPU_API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide{p->func,         p->gridDimX,  p->gridDimY,  p->gridDimZ,
                                     p->blockDimX,    p->blockDimY, p->blockDimZ, p->sharedMemBytes,
                                     p->kernelParams, p->extra,     nullptr,      nullptr};
  return cuGraphExecKernelNodeSetParams_v2(exec, node, &wide);
}
SOFTGPU_API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_MEMCPY3D* copy, CUcontext context) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, copy, [&](Call& call, GraphNode* ours) {
    return change_copy(call, ours, *copy, context);
  });
}
SOFTGPU_API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_MEMSET_NODE_PARAMS* set, CUcontext context) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, set, [&](Call& call, GraphNode* ours) {
    return change_memset(call, ours, *set, context);
  });
}
SOFTGPU_API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         const CUDA_HOST_NODE_PARAMS* params) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_HOST, params, [&](Call&, GraphNode* ours) {
    return set_host(ours, params->fn, params->userData);
  });
}
SOFTGPU_API cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event,
                [&](Call& call, GraphNode* ours) { return change_event(call, ours, event); });
}
SOFTGPU_API cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event,
                [&](Call& call, GraphNode* ours) { return change_event(call, ours, event); });
}
SOFTGPU_API cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params,
                [&](Call& call, GraphNode* ours) { return change_memops(call, ours, *params); });
}
SOFTGPU_API cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, child, [&](Call& call, GraphNode* ours) {
    const auto* graph = checked<Graph>(call.rt.graphs, child);
    return graph ? update_child(*call.rt.graph_execs.at(exec), ours, *graph)
                 : CUDA_ERROR_INVALID_VALUE;
  });
}
SOFTGPU_API cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                     CUgraphNodeParams* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  return change(exec, node, params->type, params, [&](Call& call, GraphNode* ours) {
    return change_any(call, *call.rt.graph_execs.at(exec), ours, *params);
  });
}
