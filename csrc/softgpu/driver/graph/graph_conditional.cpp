#include "graph_conditional.h"

#include "graph_exec.h"
#include "graph_launch.h"
#include "softgpu_hooks.h"

namespace softgpu {
namespace {

struct ConditionalRun : std::enable_shared_from_this<ConditionalRun> {
  ConditionalRun(const std::shared_ptr<GraphExec>& owner, const GraphNode& which,
                 const LaunchSite& where)
      : exec(owner), node(which), site(where) {}

  const std::shared_ptr<GraphExec> exec;
  const GraphNode& node;
  const LaunchSite site;
  bool finished = false;
};

ConditionalRun& run_of(const Work& work) { return *static_cast<ConditionalRun*>(work.user); }

constexpr size_t kNoBody = SIZE_MAX;

size_t chosen_body(const GraphNode& node, unsigned value) {
  switch (node.condition_type) {
    case CU_GRAPH_COND_TYPE_IF:
      if (value != 0) return 0;
      return node.inner.size() > 1 ? 1 : kNoBody;
    case CU_GRAPH_COND_TYPE_WHILE: return value != 0 ? 0 : kNoBody;
    default: return value < node.inner.size() ? value : kNoBody;
  }
}

CUresult run_end(const Work& work) {
  const Lock lock(runtime().mutex);
  run_of(work).finished = true;
  return CUDA_SUCCESS;
}

CUresult run_decision(const Work& work) {
  Runtime& rt = runtime();
  const Lock lock(rt.mutex);
  ConditionalRun& run = run_of(work);
  const size_t body = chosen_body(run.node, rt.condition_values[run.node.condition]);
  if (body == kNoBody || !run.site.context->alive) {
    run.finished = true;
    return CUDA_SUCCESS;
  }
  Work last;
  last.body = run.node.condition_type == CU_GRAPH_COND_TYPE_WHILE ? run_decision : run_end;
  last.user = &run;
  last.owner = run.shared_from_this();
  Launch(rt, run.exec, run.exec->bodies.at(&run.node)[body], run.site).run_body(last);
  return CUDA_SUCCESS;
}

CUresult run_gate(const Work& work) {
  const Lock lock(runtime().mutex);
  return run_of(work).finished ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void assign_defaults(Runtime& rt, const Graph& graph) {
  for (const auto& [handle, condition] : graph.conditions) {
    if (condition.assign_default) rt.condition_values[handle] = condition.default_value;
  }
  for (const auto& node : graph.nodes) {
    for (const auto& inner : node->inner) assign_defaults(rt, *inner);
  }
}

CUresult run_reset(const Work& work) {
  Runtime& rt = runtime();
  const Lock lock(rt.mutex);
  assign_defaults(rt, *static_cast<GraphExec*>(work.user)->graph);
  return CUDA_SUCCESS;
}

bool uses(const Graph& graph, CUgraphConditionalHandle handle) {
  for (const auto& node : graph.nodes) {
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && node->condition == handle) return true;
    for (const auto& inner : node->inner) {
      if (uses(*inner, handle)) return true;
    }
  }
  return false;
}

// Finds the condition in the graph or one around it; *owner is the graph that has it.
const Condition* find_condition(const Graph& graph, CUgraphConditionalHandle handle,
                                const Graph** owner) {
  for (const Graph* around = &graph; around;
       around = around->parent ? around->parent->graph : nullptr) {
    const auto found = around->conditions.find(handle);
    if (found == around->conditions.end()) continue;
    *owner = around;
    return &found->second;
  }
  return nullptr;
}

bool size_fits(CUgraphConditionalNodeType type, unsigned size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF: return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE: return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH: return size > 0;
    default: return false;
  }
}

}  // namespace

CUresult set_conditional(Call& call, GraphNode* node, CUDA_CONDITIONAL_NODE_PARAMS* params) {
  const Graph* owner = nullptr;
  const Condition* condition = find_condition(*node->graph, params->handle, &owner);
  if (!condition || !size_fits(params->type, params->size)) return CUDA_ERROR_INVALID_VALUE;
  const auto* context = checked<Context>(call.rt.contexts, params->ctx);
  if (params->ctx && context != condition->context) return CUDA_ERROR_INVALID_VALUE;
  if (uses(*owner, params->handle)) return CUDA_ERROR_INVALID_VALUE;
  node->condition = params->handle;
  node->condition_type = params->type;
  node->context = condition->context;
  for (unsigned i = 0; i < params->size; ++i) {
    node->inner.emplace_back(make_graph(call.rt));
    node->inner.back()->parent = node;
    node->inner.back()->is_body = true;
    node->inner_handles.push_back(reinterpret_cast<CUgraph>(node->inner.back().get()));
  }
  params->phGraph_out = node->inner_handles.data();
  return CUDA_SUCCESS;
}

std::pair<Work, Work> conditional_work(const std::shared_ptr<GraphExec>& exec,
                                       const GraphNode& node, const LaunchSite& inside) {
  const auto run = std::make_shared<ConditionalRun>(exec, node, inside);
  Work decision, gate;
  decision.body = run_decision;
  gate.kind = OpKind::kMemOpWait;
  gate.body = run_gate;
  decision.user = gate.user = run.get();
  decision.owner = gate.owner = run;
  return {decision, gate};
}

bool reset_conditions(const std::shared_ptr<GraphExec>& exec, Work* entry) {
  if (exec->bodies.empty()) return false;
  entry->body = run_reset;
  entry->user = exec.get();
  entry->owner = exec;
  return true;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph handle,
                                           CUcontext context_handle, unsigned int default_value,
                                           unsigned int flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!out || !graph || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto& stack = this_thread().stack;
  const void* wanted = context_handle;
  if (!wanted && !stack.empty()) wanted = stack.back();
  auto* context = checked<Context>(call.rt.contexts, wanted);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *out = call.rt.next_number();
  graph->conditions[*out] = {context, default_value, flags != 0};
  return CUDA_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) void softgpu_graph_set_conditional(
    uint64_t handle, unsigned value) {
  Runtime& rt = runtime();
  const Lock lock(rt.mutex);
  rt.condition_values[handle] = value;
}
