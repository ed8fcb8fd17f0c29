#include "graph_exec.h"

#include <utility>

#include "api.h"
#include "graph_conditional.h"
#include "graph_memory.h"
#include "graph_params.h"
#include "module.h"
#include "work.h"

namespace softgpu {
namespace {

constexpr cuuint64_t kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

struct Refusal {
  CUresult error;
  CUgraphInstantiateResult result;
  const GraphNode* node;  // of ours
};

void index_twins(GraphExec* exec, const Graph& graph) {
  for (const auto& node : graph.nodes) {
    exec->twins[node->origin] = node.get();
    for (const auto& inner : node->inner) index_twins(exec, *inner);
  }
}

void collect_handles(const Graph& graph, std::unordered_set<CUgraphConditionalHandle>* used) {
  for (const auto& node : graph.nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) used->insert(node->condition);
    for (const auto& inner : node->inner) collect_handles(*inner, used);
  }
}

bool has_unused_condition(const Graph& graph) {
  std::unordered_set<CUgraphConditionalHandle> used;
  collect_handles(graph, &used);
  for (const auto& [handle, condition] : graph.conditions) {
    if (!used.count(handle)) return true;
  }
  return false;
}

// The node that makes a plan impossible, if there is one.
const GraphNode* plan_bodies(GraphExec* exec, const Graph& graph, bool priorities) {
  for (const auto& node : graph.nodes) {
    for (const auto& inner : node->inner) {
      if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        auto& plans = exec->bodies[node.get()];
        plans.push_back(make_plan(*inner, priorities));
        if (plans.back().culprit) return plans.back().culprit;
      }
      if (const GraphNode* culprit = plan_bodies(exec, *inner, priorities)) return culprit;
    }
  }
  return nullptr;
}

Refusal prepare(GraphExec* exec, const Graph& source) {
  const CUresult bad = CUDA_ERROR_INVALID_VALUE;
  const bool exclusive = contains(source, is_memory_node) || contains(source, is_conditional_node);
  if (exclusive && source.execs > 0) return {bad, CUDA_GRAPH_INSTANTIATE_ERROR, nullptr};
  exec->graph = clone_graph(exec->rt, source);
  if (has_unused_condition(*exec->graph)) {
    return {bad, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, nullptr};
  }
  index_twins(exec, *exec->graph);
  const bool priorities = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  exec->plan = make_plan(*exec->graph, priorities);
  const GraphNode* culprit = exec->plan.culprit;
  if (!culprit) culprit = plan_bodies(exec, *exec->graph, priorities);
  if (culprit) return {bad, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, culprit};
  return {CUDA_SUCCESS, CUDA_GRAPH_INSTANTIATE_SUCCESS, nullptr};
}

GraphNode* original_of(const Graph& source, const GraphNode* ours) {
  if (!ours) return nullptr;
  for (const auto& node : source.nodes) {
    if (node->number == ours->origin) return node.get();
    for (const auto& inner : node->inner) {
      if (GraphNode* found = original_of(*inner, ours)) return found;
    }
  }
  return nullptr;
}

Refusal instantiate(CUgraphExec* out, CUgraph handle, cuuint64_t flags, CUgraphNode* culprit) {
  Call call(Call::kContext);
  const auto refuse = [](CUresult error) {
    return Refusal{error, CUDA_GRAPH_INSTANTIATE_ERROR, nullptr};
  };
  if (call.error) return refuse(call.error);
  auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!out || !graph || (flags & ~kKnownFlags) != 0) return refuse(CUDA_ERROR_INVALID_VALUE);
  if (graph->captures > 0 || graph->is_body || graph->moved) {
    return refuse(CUDA_ERROR_INVALID_VALUE);
  }
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
    const bool both = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    return refuse(both ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED);
  }
  auto exec = std::make_shared<GraphExec>(call.rt);
  exec->id = static_cast<unsigned>(call.rt.next_number());
  exec->flags = flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  exec->source_id = graph->id;
  const Refusal refusal = prepare(exec.get(), *graph);
  if (refusal.error) {
    if (culprit) *culprit = reinterpret_cast<CUgraphNode>(original_of(*graph, refusal.node));
    exec->source_id = 0;
    return refusal;
  }
  ++graph->execs;
  *out = reinterpret_cast<CUgraphExec>(exec.get());
  call.rt.graph_execs.emplace(exec.get(), std::move(exec));
  return refusal;
}

// The change of a node of an exec, after which it takes part in launches as before.
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
  Function* function = nullptr;
  if (resolve_function(call.rt, ours->context, handle, &function)) return CUDA_ERROR_INVALID_VALUE;
  if (function->module->context != ours->context) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS same_context = params;
  same_context.func = reinterpret_cast<CUfunction>(function);
  same_context.ctx = reinterpret_cast<CUcontext>(ours->context);
  return set_kernel(call, ours, same_context);
}

// What memory an operand is in may not change, only where.
bool same_home(Runtime& rt, const void* before, const void* after) {
  const Range* a = find_range(rt, reinterpret_cast<uintptr_t>(before), 1);
  const Range* b = find_range(rt, reinterpret_cast<uintptr_t>(after), 1);
  if (!a || !b) return a == b;
  return a->device == b->device && a->context == b->context && a->kind == b->kind;
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
  if (was.kind != is.kind || !same_home(call.rt, was.source, is.source) ||
      !same_home(call.rt, was.destination, is.destination)) {
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
  Context* lane = ours->context;  // that of a wait may change, its place in the plan does not
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

CUresult use_enabled(CUgraphExec handle, CUgraphNode node, unsigned* get, const unsigned* set) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto found = call.rt.graph_execs.find(handle);
  const auto* original = checked<GraphNode>(call.rt.graph_nodes, node);
  if (found == call.rt.graph_execs.end() || !original) return CUDA_ERROR_INVALID_VALUE;
  GraphExec& exec = *found->second;
  const GraphNode* ours = find_twin(exec, node, original->type);
  if (!ours || (!get && !set)) return CUDA_ERROR_INVALID_VALUE;
  if (ours->type != CU_GRAPH_NODE_TYPE_KERNEL && ours->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
      ours->type != CU_GRAPH_NODE_TYPE_MEMSET) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (get) *get = exec.disabled.count(ours) ? 0 : 1;
  if (set && *set == 0) exec.disabled.insert(ours);
  if (set && *set != 0) exec.disabled.erase(ours);
  return CUDA_SUCCESS;
}

}  // namespace

GraphExec::~GraphExec() {
  for (const auto& node : rt.graphs) {
    auto* source = static_cast<Graph*>(const_cast<void*>(node));
    if (source->id == source_id) --source->execs;
  }
  release_graph_memory(*this);
  for (const LaneStream& own : streams) {
    if (rt.streams.count(own.stream) && own.stream->number == own.stream_number) {
      destroy_stream(rt, own.stream);
    }
  }
  if (graph) destroy_graph(rt, std::move(graph));
}

GraphNode* find_twin(GraphExec& exec, CUgraphNode handle, CUgraphNodeType type) {
  const auto* original = checked<GraphNode>(exec.rt.graph_nodes, handle);
  if (!original || original->type != type) return nullptr;
  const auto found = exec.twins.find(original->number);
  return found == exec.twins.end() ? nullptr : found->second;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(out, graph, flags, nullptr).error;
}

static CUresult instantiate_with_log(CUgraphExec* out, CUgraph graph, CUgraphNode* culprit,
                                     char* log, size_t log_bytes) {
  if (culprit) *culprit = nullptr;
  if (log && log_bytes > 0) *log = 0;
  return instantiate(out, graph, 0, culprit).error;
}
SOFTGPU_API cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* culprit, char* log,
                               size_t log_bytes) {
  return instantiate_with_log(out, graph, culprit, log, log_bytes);
}
SOFTGPU_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* culprit, char* log,
                                  size_t log_bytes) {
  return instantiate_with_log(out, graph, culprit, log, log_bytes);
}

SOFTGPU_API cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                         CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  const Refusal refusal = instantiate(out, graph, params->flags, &params->hErrNode_out);
  params->result_out = refusal.result;
  if (refusal.error || !(params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)) return refusal.error;
  const CUresult uploaded = cuGraphUpload(*out, params->hUploadStream);
  if (uploaded) {
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    cuGraphExecDestroy(*out);
  }
  return uploaded;
}

SOFTGPU_API cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto found = call.rt.graph_execs.find(handle);
  if (found == call.rt.graph_execs.end() || !flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->second->flags;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphExecGetId(CUgraphExec handle, unsigned int* id) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto found = call.rt.graph_execs.find(handle);
  if (found == call.rt.graph_execs.end() || !id) return CUDA_ERROR_INVALID_VALUE;
  *id = found->second->id;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphExecDestroy(CUgraphExec handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (call.rt.graph_execs.erase(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                              const CUDA_KERNEL_NODE_PARAMS* params) {
  return change(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, params, [&](Call& call, GraphNode* ours) {
    return change_kernel(call, ours, *params);
  });
}
SOFTGPU_API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide{p->func,      p->gridDimX,  p->gridDimY,
                                     p->gridDimZ,  p->blockDimX, p->blockDimY,
                                     p->blockDimZ, p->sharedMemBytes, p->kernelParams,
                                     p->extra,     nullptr,      nullptr};
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

SOFTGPU_API cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
  return use_enabled(exec, node, nullptr, &enabled);
}
SOFTGPU_API cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int* enabled) {
  return use_enabled(exec, node, enabled, nullptr);
}

SOFTGPU_API cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                                 CUgraphExecUpdateResultInfo* info) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!info) return CUDA_ERROR_INVALID_VALUE;
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  const auto found = call.rt.graph_execs.find(handle);
  const auto* graph = checked<Graph>(call.rt.graphs, graph_handle);
  if (found == call.rt.graph_execs.end() || !graph || graph->captures > 0 || graph->moved) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return update_exec(*found->second, *graph, info);
}
SOFTGPU_API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* culprit,
                              CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult error = cuGraphExecUpdate_v2(exec, graph, &info);
  if (culprit) *culprit = info.errorNode;
  if (result) *result = info.result;
  return error;
}
