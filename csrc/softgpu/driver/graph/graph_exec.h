// Executable graphs: a clone of a graph, laid out, with the streams that its lanes use.
//
// An exec is shared by its handle and its unfinished launches, so destroying one that is in flight
// frees it afterwards. Runtime::mutex protects everything, including the destruction.
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph.h"
#include "graph_plan.h"
#include "runtime.h"

namespace softgpu {

struct GraphExec {
  explicit GraphExec(Runtime& runtime) : rt(runtime) {}
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;

  Runtime& rt;
  unsigned id = 0;
  cuuint64_t flags = 0;
  std::unique_ptr<Graph> graph;
  unsigned source_id = 0;  // of the graph it was made from, which may be gone
  Plan plan;
  std::unordered_map<const GraphNode*, std::vector<Plan>> bodies;  // of conditional nodes
  // Nodes of this clone, by the number of the original.
  std::unordered_map<uint64_t, GraphNode*> twins;
  std::unordered_set<const GraphNode*> disabled;  // of the clone
  // Allocations that it keeps backed for its launches.
  std::unordered_set<GraphAllocation*> backed;
  uint64_t last_op = 0;  // of the newest launch

  struct LaneStream {
    const Plan* plan;
    uint32_t lane;
    Stream* stream;
    uint64_t stream_number;  // tells whether `stream` is still the one that was created
  };
  std::vector<LaneStream> streams;
};

// The clone of a node of the graph it was made from; null if there is none of that type.
GraphNode* find_twin(GraphExec& exec, CUgraphNode handle, CUgraphNodeType type);

// Makes `exec` do what `graph` says, or reports why it cannot.
CUresult update_exec(GraphExec& exec, const Graph& graph, CUgraphExecUpdateResultInfo* info);
// Does the same for one child graph node.
CUresult update_child(GraphExec& exec, GraphNode* ours, const Graph& child);

}  // namespace softgpu
