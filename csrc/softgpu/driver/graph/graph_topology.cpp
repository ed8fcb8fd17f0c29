// Graphs as such: their lifetime, nodes and edges. graph_nodes.cpp has what nodes do.
#include <algorithm>
#include <cstring>

#include "api.h"
#include "graph.h"

namespace softgpu {
namespace {

using Listed = std::vector<std::pair<CUgraphNode, CUgraphEdgeData>>;

CUgraphNode handle_of(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }

// Answers the queries for lists, which all work alike: without an array they return the length,
// otherwise at most *count elements, and set the rest of the array to null.
CUresult give(const Listed& listed, CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  if (!count || (data && !nodes)) return CUDA_ERROR_INVALID_VALUE;
  if (!nodes) {
    *count = listed.size();
    return CUDA_SUCCESS;
  }
  const size_t given = std::min(*count, listed.size());
  for (size_t i = 0; i < given; ++i) {
    if (!data && !is_plain(listed[i].second)) return CUDA_ERROR_LOSSY_QUERY;
  }
  for (size_t i = 0; i < *count; ++i) {
    nodes[i] = i < given ? listed[i].first : nullptr;
    if (data) data[i] = i < given ? listed[i].second : CUgraphEdgeData{};
  }
  *count = given;
  return CUDA_SUCCESS;
}

Listed list(const std::vector<GraphEdge>& edges) {
  Listed listed;
  for (const GraphEdge& edge : edges) listed.emplace_back(handle_of(edge.node), edge.data);
  return listed;
}

template <class Wanted>
CUresult give_nodes(CUgraph handle, CUgraphNode* nodes, size_t* count, Wanted wanted) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  Listed listed;
  for (const auto& node : graph->nodes) {
    if (wanted(*node)) listed.emplace_back(handle_of(node.get()), CUgraphEdgeData{});
  }
  return give(listed, nodes, nullptr, count);
}

CUresult give_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                    size_t* count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!graph || !count || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Listed sources, targets;
  for (const auto& node : graph->nodes) {
    for (const GraphEdge& edge : node->dependents) {
      sources.emplace_back(handle_of(node.get()), edge.data);
      targets.emplace_back(handle_of(edge.node), CUgraphEdgeData{});
    }
  }
  size_t room = *count;
  const CUresult bad = give(sources, from, data, count);
  return bad || !to ? bad : give(targets, to, nullptr, &room);
}

CUresult give_neighbours(CUgraphNode handle, std::vector<GraphEdge> GraphNode::* edges,
                         CUgraphNode* nodes, CUgraphEdgeData* data, size_t* count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* node = checked<GraphNode>(call.rt.graph_nodes, handle);
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  return give(list(node->*edges), nodes, data, count);
}

bool same(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return memcmp(&a, &b, sizeof a) == 0;
}

std::vector<GraphEdge>::iterator find_edge(std::vector<GraphEdge>* edges, const GraphNode* node,
                                           const CUgraphEdgeData& data) {
  return std::find_if(edges->begin(), edges->end(), [&](const GraphEdge& edge) {
    return edge.node == node && same(edge.data, data);
  });
}

struct Pair {
  GraphNode *from, *to;
  CUgraphEdgeData data;
};
bool operator==(const Pair& a, const Pair& b) {
  return a.from == b.from && a.to == b.to && same(a.data, b.data);
}

bool is_connected(const Pair& pair) {
  auto& edges = pair.to->dependencies;
  return find_edge(&edges, pair.from, pair.data) != edges.end();
}

CUresult read_pairs(Runtime& rt, const Graph* graph, const CUgraphNode* from, const CUgraphNode* to,
                    const CUgraphEdgeData* data, size_t count, std::vector<Pair>* pairs) {
  if (!graph || (count > 0 && (!from || !to))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    auto* source = checked<GraphNode>(rt.graph_nodes, from[i]);
    auto* target = checked<GraphNode>(rt.graph_nodes, to[i]);
    if (!source || !target || source == target) return CUDA_ERROR_INVALID_VALUE;
    if (target->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    const CUgraphEdgeData* own = data ? data + i : nullptr;
    if (const CUresult bad = check_dependencies(rt, graph, from + i, own, 1, target->type)) {
      return bad;
    }
    pairs->push_back({source, target, own ? *own : CUgraphEdgeData{}});
  }
  return CUDA_SUCCESS;
}

CUresult add_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                          const CUgraphEdgeData* data, size_t count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* graph = checked<Graph>(call.rt.graphs, handle);
  std::vector<Pair> pairs;
  if (const CUresult bad = read_pairs(call.rt, graph, from, to, data, count, &pairs)) return bad;
  for (const Pair& pair : pairs) {
    const bool twice = std::count(pairs.begin(), pairs.end(), pair) > 1;
    if (twice || is_connected(pair)) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const Pair& pair : pairs) connect(pair.from, pair.to, pair.data);
  return CUDA_SUCCESS;
}

CUresult remove_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                             const CUgraphEdgeData* data, size_t count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* graph = checked<Graph>(call.rt.graphs, handle);
  std::vector<Pair> pairs;
  if (const CUresult bad = read_pairs(call.rt, graph, from, to, data, count, &pairs)) return bad;
  if (count > 0 && contains(*graph, is_memory_node)) return CUDA_ERROR_INVALID_VALUE;
  if (!std::all_of(pairs.begin(), pairs.end(), is_connected)) return CUDA_ERROR_INVALID_VALUE;
  for (const Pair& pair : pairs) {
    auto& in = pair.to->dependencies;
    auto& out = pair.from->dependents;
    const auto edge = find_edge(&in, pair.from, pair.data);
    if (edge == in.end()) continue;  // listed twice
    in.erase(edge);
    out.erase(find_edge(&out, pair.to, pair.data));
  }
  return CUDA_SUCCESS;
}

GraphNode* find_twin(const Graph& clone, uint64_t origin) {
  for (const auto& node : clone.nodes) {
    if (node->origin == origin) return node.get();
    for (const auto& inner : node->inner) {
      if (GraphNode* twin = find_twin(*inner, origin)) return twin;
    }
  }
  return nullptr;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuGraphCreate(CUgraph* out, unsigned int flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(make_graph(call.rt));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphDestroy(CUgraph handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!graph || graph->parent || graph->captures > 0) return CUDA_ERROR_INVALID_VALUE;
  destroy_graph(call.rt, std::unique_ptr<Graph>(graph));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphClone(CUgraph* out, CUgraph handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
  if (contains(*graph, is_memory_node) || contains(*graph, is_conditional_node)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *out = reinterpret_cast<CUgraph>(clone_graph(call.rt, *graph).release());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* node = checked<GraphNode>(call.rt.graph_nodes, original);
  const auto* graph = checked<Graph>(call.rt.graphs, clone);
  if (!out || !node || !graph) return CUDA_ERROR_INVALID_VALUE;
  GraphNode* twin = find_twin(*graph, node->number);
  if (!twin) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(twin);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return give_nodes(graph, nodes, count, [](const GraphNode&) { return true; });
}

SOFTGPU_API cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return give_nodes(graph, nodes, count,
                    [](const GraphNode& node) { return node.dependencies.empty(); });
}

SOFTGPU_API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                               CUgraphEdgeData* data, size_t* count) {
  return give_edges(graph, from, to, data, count);
}
SOFTGPU_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return give_edges(graph, from, to, nullptr, count);
}

SOFTGPU_API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes,
                                          CUgraphEdgeData* data, size_t* count) {
  return give_neighbours(node, &GraphNode::dependencies, nodes, data, count);
}
SOFTGPU_API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return give_neighbours(node, &GraphNode::dependencies, nodes, nullptr, count);
}

SOFTGPU_API cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes,
                                            CUgraphEdgeData* data, size_t* count) {
  return give_neighbours(node, &GraphNode::dependents, nodes, data, count);
}
SOFTGPU_API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return give_neighbours(node, &GraphNode::dependents, nodes, nullptr, count);
}

SOFTGPU_API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) {
  return add_dependencies(graph, from, to, data, count);
}
SOFTGPU_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) {
  return add_dependencies(graph, from, to, nullptr, count);
}

SOFTGPU_API cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                         const CUgraphNode* to, const CUgraphEdgeData* data,
                                         size_t count) {
  return remove_dependencies(graph, from, to, data, count);
}
SOFTGPU_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      size_t count) {
  return remove_dependencies(graph, from, to, nullptr, count);
}

SOFTGPU_API cuGraphDestroyNode(CUgraphNode handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* node = checked<GraphNode>(call.rt.graph_nodes, handle);
  if (!node || node->graph->captures > 0) return CUDA_ERROR_INVALID_VALUE;
  if (contains(*node->graph, is_memory_node)) return CUDA_ERROR_INVALID_VALUE;
  destroy_node(call.rt, node);
  return CUDA_SUCCESS;
}

template <class Value, class Get>
static CUresult ask_node(CUgraphNode handle, Value* out, Get get) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* node = checked<GraphNode>(call.rt.graph_nodes, handle);
  if (!node || !out) return CUDA_ERROR_INVALID_VALUE;
  *out = get(*node);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return ask_node(node, type, [](const GraphNode& n) { return n.type; });
}
SOFTGPU_API cuGraphNodeGetContainingGraph(CUgraphNode node, CUgraph* graph) {
  return ask_node(node, graph,
                  [](const GraphNode& n) { return reinterpret_cast<CUgraph>(n.graph); });
}
SOFTGPU_API cuGraphNodeGetLocalId(CUgraphNode node, unsigned int* id) {
  return ask_node(node, id, [](const GraphNode& n) { return n.id; });
}
SOFTGPU_API cuGraphNodeGetToolsId(CUgraphNode node, unsigned long long* id) {
  return ask_node(node, id, [](const GraphNode& n) { return n.number; });
}

SOFTGPU_API cuGraphGetId(CUgraph handle, unsigned int* id) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* graph = checked<Graph>(call.rt.graphs, handle);
  if (!graph || !id) return CUDA_ERROR_INVALID_VALUE;
  *id = graph->id;
  return CUDA_SUCCESS;
}
