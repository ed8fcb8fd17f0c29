#include "graph.h"

#include <algorithm>
#include <unordered_set>

#include "runtime.h"
#include "user_object.h"

namespace softgpu {
namespace {

bool fits(const CUgraphEdgeData& data, CUgraphNodeType from, CUgraphNodeType to) {
  for (const unsigned char byte : data.reserved) {
    if (byte != 0) return false;
  }
  if (data.to_port != 0) return false;
  const bool kernels = from == CU_GRAPH_NODE_TYPE_KERNEL && to == CU_GRAPH_NODE_TYPE_KERNEL;
  switch (data.type) {
    case CU_GRAPH_DEPENDENCY_TYPE_DEFAULT:
      return data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT ||
             (from == CU_GRAPH_NODE_TYPE_KERNEL &&
              data.from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    case CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC:
      return kernels && (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
                         data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    default: return false;
  }
}

void forget(std::vector<GraphEdge>* edges, const GraphNode* node) {
  edges->erase(std::remove_if(edges->begin(), edges->end(),
                              [&](const GraphEdge& edge) { return edge.node == node; }),
               edges->end());
}

void forget_handles(Runtime& rt, const Graph& graph) {
  rt.graphs.erase(&graph);
  for (const auto& [handle, condition] : graph.conditions) rt.condition_values.erase(handle);
  for (const auto& node : graph.nodes) {
    rt.graph_nodes.erase(node.get());
    for (const auto& inner : node->inner) forget_handles(rt, *inner);
  }
}

void release_user_objects(Runtime& rt, Graph* graph) {
  for (const auto& [object, count] : graph->user_objects) release_references(rt, object, count);
  graph->user_objects.clear();
  for (const auto& node : graph->nodes) {
    for (const auto& inner : node->inner) release_user_objects(rt, inner.get());
  }
}

void copy_contents(const GraphNode& from, GraphNode* to) {
  to->origin = from.number;
  to->context = from.context;
  to->work = from.work;
  to->copy = from.copy;
  to->memset = from.memset;
  to->memops = from.memops;
  to->packed_params = from.packed_params;
  to->event = from.event;
  to->alloc = from.alloc;
  to->alloc_access = from.alloc_access;
  to->freed = from.freed;
  to->memory = from.memory;
  to->condition = from.condition;
  to->condition_type = from.condition_type;
  to->attributes = from.attributes;
}

}  // namespace

Graph* make_graph(Runtime& rt) {
  auto* graph = new Graph;
  graph->id = static_cast<unsigned>(rt.next_number());
  rt.graphs.insert(graph);
  return graph;
}

void destroy_graph(Runtime& rt, std::unique_ptr<Graph> graph) {
  forget_handles(rt, *graph);
  release_user_objects(rt, graph.get());
}

bool contains(const Graph& graph, bool (*wanted)(CUgraphNodeType)) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
    return wanted(node->type) ||
           std::any_of(node->inner.begin(), node->inner.end(),
                       [&](const auto& inner) { return contains(*inner, wanted); });
  });
}

std::unique_ptr<Graph> clone_graph(Runtime& rt, const Graph& graph) {
  std::unique_ptr<Graph> clone(make_graph(rt));
  clone->last_node_id = graph.last_node_id;
  clone->is_body = graph.is_body;
  clone->conditions = graph.conditions;
  std::unordered_map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : graph.nodes) {
    GraphNode* twin = make_node(rt, clone.get(), node->type);
    twin->id = node->id;
    copy_contents(*node, twin);
    for (const auto& inner : node->inner) {
      twin->inner.push_back(clone_graph(rt, *inner));
      twin->inner.back()->parent = twin;
      twin->inner_handles.push_back(reinterpret_cast<CUgraph>(twin->inner.back().get()));
    }
    twins[node.get()] = twin;
  }
  for (const auto& node : graph.nodes) {
    for (const GraphEdge& edge : node->dependencies) {
      connect(twins[edge.node], twins[node.get()], edge.data);
    }
  }
  for (const auto& [object, count] : graph.user_objects) {
    clone->user_objects[object] = count;
    retain_references(object, count);
  }
  return clone;
}

GraphNode* make_node(Runtime& rt, Graph* graph, CUgraphNodeType type) {
  graph->nodes.push_back(std::make_unique<GraphNode>());
  GraphNode* node = graph->nodes.back().get();
  node->graph = graph;
  node->type = type;
  node->number = rt.next_number();
  node->id = graph->last_node_id++;
  rt.graph_nodes.insert(node);
  return node;
}

bool is_node_attribute(int id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: return true;
    default: return false;
  }
}

CUresult may_hold(const Graph& graph, CUgraphNodeType type) {
  // Allocations belong to the outermost graph; a child may only bring its own.
  if (is_memory_node(type) && graph.parent) return CUDA_ERROR_NOT_SUPPORTED;
  for (const Graph* outer = &graph; outer; outer = outer->parent ? outer->parent->graph : nullptr) {
    if (!outer->is_body) continue;
    switch (type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
      case CU_GRAPH_NODE_TYPE_EMPTY:
      case CU_GRAPH_NODE_TYPE_GRAPH:
      case CU_GRAPH_NODE_TYPE_MEMSET:
      case CU_GRAPH_NODE_TYPE_MEMCPY:
      case CU_GRAPH_NODE_TYPE_CONDITIONAL: break;
      default: return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

void destroy_node(Runtime& rt, GraphNode* node) {
  for (const GraphEdge& edge : node->dependencies) forget(&edge.node->dependents, node);
  for (const GraphEdge& edge : node->dependents) forget(&edge.node->dependencies, node);
  for (auto& inner : node->inner) destroy_graph(rt, std::move(inner));
  rt.graph_nodes.erase(node);
  auto& nodes = node->graph->nodes;
  nodes.erase(
      std::find_if(nodes.begin(), nodes.end(), [&](const auto& own) { return own.get() == node; }));
}

void connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData& data) {
  from->dependents.push_back({to, data});
  to->dependencies.push_back({from, data});
}

CUresult check_dependencies(Runtime& rt, const Graph* graph, const CUgraphNode* dependencies,
                            const CUgraphEdgeData* data, size_t count, CUgraphNodeType to_type) {
  if (count > 0 && !dependencies) return CUDA_ERROR_INVALID_VALUE;
  std::unordered_set<const GraphNode*> seen;
  for (size_t i = 0; i < count; ++i) {
    const auto* node = checked<GraphNode>(rt.graph_nodes, dependencies[i]);
    if (!node || node->graph != graph || !seen.insert(node).second) return CUDA_ERROR_INVALID_VALUE;
    if (data && !fits(data[i], node->type, to_type)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

std::vector<GraphNode*> in_order(const Graph& graph) {
  std::unordered_map<const GraphNode*, size_t> missing;
  std::vector<GraphNode*> order;
  order.reserve(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    if (node->dependencies.empty()) order.push_back(node.get());
    missing[node.get()] = node->dependencies.size();
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const GraphEdge& edge : order[i]->dependents) {
      if (--missing[edge.node] == 0) order.push_back(edge.node);
    }
  }
  return order;
}

}  // namespace softgpu
