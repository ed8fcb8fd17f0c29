// Graphs: nodes of work and the edges that order them.
//
// A Graph owns its nodes; a node owns the graphs inside it (a child graph, the bodies of a
// conditional). Everything is protected by Runtime::mutex. An executable graph (graph_exec.h) keeps
// a clone, so the graph it was made from may change or go.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "objects.h"

namespace softgpu {

class Runtime;
struct Graph;
struct GraphAllocation;
struct GraphNode;
struct UserObject;

struct GraphNode {
  Graph* graph;
  CUgraphNodeType type;
  uint64_t number;      // unique in the process, unlike its address
  uint64_t origin = 0;  // number of the node that this one is a clone of
  unsigned id = 0;      // unique in its graph
  // The context it runs in, wherever the graph is launched; a green context's view for work on its
  // SMs. Null if the node needs none.
  Context* context = nullptr;

  std::vector<Work> work;  // in sequence; empty if the node only orders others
  // As the program gave them, so that it can read them back.
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS memset{};
  std::vector<CUstreamBatchMemOpParams> memops;
  bool packed_params = false;  // a kernel's parameters came as `extra`
  Event* event = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  std::vector<CUmemAccessDesc> alloc_access;
  CUdeviceptr freed = 0;
  std::shared_ptr<GraphAllocation> memory;  // of an allocation or free node
  CUgraphConditionalHandle condition = 0;
  CUgraphConditionalNodeType condition_type = CU_GRAPH_COND_TYPE_IF;
  std::map<int, CUkernelNodeAttrValue> attributes;
  std::vector<std::unique_ptr<Graph>> inner;
  std::vector<CUgraph> inner_handles;  // phGraph_out in cuda.h

  std::vector<GraphEdge> dependencies, dependents;

  // Getters return pointers to these; valid until the parameters change.
  std::vector<void*> param_pointers;
  size_t param_bytes = 0;
};

struct Condition {
  Context* context;
  unsigned default_value;
  bool assign_default;
};

struct Graph {
  unsigned id;
  unsigned last_node_id = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in order of creation
  GraphNode* parent = nullptr;                    // the node whose child or body this is
  bool is_body = false;                           // of a conditional
  bool moved = false;     // into its parent by the program, which keeps the handle
  uint32_t captures = 0;  // captures that add to it at present
  uint32_t execs = 0;     // executable graphs made from it
  std::map<CUgraphConditionalHandle, Condition> conditions;
  std::map<UserObject*, unsigned> user_objects;  // with how many references the graph owns
};

Graph* make_graph(Runtime& rt);
// Also invalidates the handles of everything in the graph.
void destroy_graph(Runtime& rt, std::unique_ptr<Graph> graph);
std::unique_ptr<Graph> clone_graph(Runtime& rt, const Graph& graph);
bool contains(const Graph& graph, bool (*wanted)(CUgraphNodeType));
inline bool is_memory_node(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}
inline bool is_conditional_node(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

// Whether cuGraphKernelNodeSetAttribute takes this attribute.
bool is_node_attribute(int id);

// Adds a node without edges. `graph` must be able to hold its type, see may_hold.
GraphNode* make_node(Runtime& rt, Graph* graph, CUgraphNodeType type);
CUresult may_hold(const Graph& graph, CUgraphNodeType type);
void destroy_node(Runtime& rt, GraphNode* node);
inline bool is_plain(const CUgraphEdgeData& data) {
  return data.type == 0 && data.from_port == 0 && data.to_port == 0;
}
void connect(GraphNode* from, GraphNode* to, const CUgraphEdgeData& data);
// Checks that all are in `graph`, none twice, with edge data that fits `to_type`.
CUresult check_dependencies(Runtime& rt, const Graph* graph, const CUgraphNode* dependencies,
                            const CUgraphEdgeData* data, size_t count, CUgraphNodeType to_type);
// Every node after its dependencies. If there is a cycle, some nodes are missing.
std::vector<GraphNode*> in_order(const Graph& graph);

}  // namespace softgpu
