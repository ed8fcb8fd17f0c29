// cuGraphExecUpdate: whether an executable graph can take over what another graph's nodes do.
#include <utility>

#include "graph_exec.h"

namespace softgpu {
namespace {

struct Difference {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const GraphNode* node = nullptr;  // both are nodes of the new graph
  const GraphNode* from = nullptr;
};

bool same_rows(const Work& a, const Work& b) {
  return a.bytes == b.bytes && a.height == b.height && a.source_pitch == b.source_pitch &&
         a.destination_pitch == b.destination_pitch && a.depth == b.depth &&
         a.source_slice == b.source_slice && a.destination_slice == b.destination_slice;
}

int priority_of(const GraphNode& node) {
  const auto found = node.attributes.find(CU_LAUNCH_ATTRIBUTE_PRIORITY);
  return found == node.attributes.end() ? 0 : found->second.priority;
}

int cooperative(const GraphNode& node) {
  const auto found = node.attributes.find(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  return found == node.attributes.end() ? 0 : found->second.cooperative;
}

class Comparison {
 public:
  explicit Comparison(bool node_priorities) : node_priorities_(node_priorities) {}

  // Nodes are paired in order of creation, dependencies in order of their edges.
  Difference graphs(const Graph& ours, const Graph& theirs) {
    if (ours.nodes.size() != theirs.nodes.size()) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr, nullptr};
    }
    std::unordered_map<const GraphNode*, const GraphNode*> pairs;
    for (size_t i = 0; i < ours.nodes.size(); ++i) {
      pairs[theirs.nodes[i].get()] = ours.nodes[i].get();
    }
    for (size_t i = 0; i < ours.nodes.size(); ++i) {
      const Difference found = edges(*ours.nodes[i], *theirs.nodes[i], pairs);
      if (found.result) return found;
    }
    for (size_t i = 0; i < ours.nodes.size(); ++i) {
      const Difference found = nodes(*ours.nodes[i], *theirs.nodes[i]);
      if (found.result) return found;
    }
    return {};
  }

 private:
  static Difference edges(const GraphNode& ours, const GraphNode& theirs,
                          const std::unordered_map<const GraphNode*, const GraphNode*>& pairs) {
    const CUgraphExecUpdateResult changed = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (ours.dependencies.size() != theirs.dependencies.size()) return {changed, &theirs, nullptr};
    for (size_t i = 0; i < ours.dependencies.size(); ++i) {
      const GraphNode* from = theirs.dependencies[i].node;
      if (pairs.at(from) != ours.dependencies[i].node) return {changed, &theirs, from};
    }
    return {};
  }

  Difference nodes(const GraphNode& ours, const GraphNode& theirs) {
    if (ours.type != theirs.type) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &theirs, nullptr};
    }
    const Difference parameters{CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, &theirs, nullptr};
    switch (ours.type) {
      case CU_GRAPH_NODE_TYPE_KERNEL: return kernels(ours, theirs);
      case CU_GRAPH_NODE_TYPE_MEMCPY:
      case CU_GRAPH_NODE_TYPE_MEMSET: {
        const Work& a = ours.work.front();
        const Work& b = theirs.work.front();
        const bool rows = a.height * a.depth > 1 || b.height * b.depth > 1;
        if (ours.context != theirs.context || a.kind != b.kind || (rows && !same_rows(a, b))) {
          return parameters;
        }
        return {};
      }
      case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return same_memops(ours, theirs) ? Difference{} : parameters;
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return ours.context == theirs.context ? Difference{} : parameters;
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return {CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, &theirs, nullptr};
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        if (ours.condition_type != theirs.condition_type ||
            ours.inner.size() != theirs.inner.size() || ours.context != theirs.context) {
          return parameters;
        }
        break;
      default: break;
    }
    for (size_t i = 0; i < ours.inner.size(); ++i) {
      const Difference found = graphs(*ours.inner[i], *theirs.inner[i]);
      if (found.result) return found;
    }
    return {};
  }

  Difference kernels(const GraphNode& ours, const GraphNode& theirs) const {
    if (ours.context != theirs.context) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, &theirs, nullptr};
    }
    if (cooperative(ours) != cooperative(theirs) ||
        (node_priorities_ && priority_of(ours) != priority_of(theirs))) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, &theirs, nullptr};
    }
    return {};
  }

  static bool same_memops(const GraphNode& ours, const GraphNode& theirs) {
    if (ours.context != theirs.context || ours.memops.size() != theirs.memops.size()) return false;
    for (size_t i = 0; i < ours.memops.size(); ++i) {
      if (ours.memops[i].operation != theirs.memops[i].operation) return false;
    }
    return true;
  }

  const bool node_priorities_;
};

void take_over(Graph* ours, const Graph& theirs) {
  for (size_t i = 0; i < ours->nodes.size(); ++i) {
    GraphNode* to = ours->nodes[i].get();
    const GraphNode& from = *theirs.nodes[i];
    to->work = from.work;
    to->copy = from.copy;
    to->memset = from.memset;
    to->memops = from.memops;
    to->packed_params = from.packed_params;
    to->event = from.event;
    to->attributes = from.attributes;
    for (size_t j = 0; j < to->inner.size(); ++j) take_over(to->inner[j].get(), *from.inner[j]);
  }
  ours->conditions = theirs.conditions;
}

bool by_node_priority(const GraphExec& exec) {
  return (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
}

CUgraphNode handle_of(const GraphNode* node) {
  return reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(node));
}

}  // namespace

CUresult update_exec(GraphExec& exec, const Graph& graph, CUgraphExecUpdateResultInfo* info) {
  const Difference found = Comparison(by_node_priority(exec)).graphs(*exec.graph, graph);
  *info = {found.result, handle_of(found.node), handle_of(found.from)};
  if (found.result) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  take_over(exec.graph.get(), graph);
  return CUDA_SUCCESS;
}

CUresult update_child(GraphExec& exec, GraphNode* ours, const Graph& child) {
  Graph* inner = ours->inner.front().get();
  const Difference found = Comparison(by_node_priority(exec)).graphs(*inner, child);
  if (found.result) return CUDA_ERROR_INVALID_VALUE;
  take_over(inner, child);
  return CUDA_SUCCESS;
}

}  // namespace softgpu
