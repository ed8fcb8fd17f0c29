#include "graph_exec.h"

#include <utility>

#include "api.h"
#include "graph_conditional.h"
#include "graph_memory.h"

namespace softgpu {
namespace {

constexpr cuuint64_t kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

struct Refusal {
  CUresult error;
  CUgraphInstantiateResult result;
  const GraphNode* node;  // of the clone
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

// Plans the bodies; returns the node that makes a plan impossible, or null.
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
