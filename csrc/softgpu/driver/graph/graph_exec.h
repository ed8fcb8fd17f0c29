// Executable graphs: a clone of a graph, laid out, and the streams that its lanes use.
//
// An exec is shared: by its handle and by its launches that have not ended, so that destroying one
// in flight frees it afterwards. All under Runtime::mutex, its destruction included.
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
  std::unordered_map<uint64_t, GraphNode*> twins;  // ours, by the number of the original
  std::unordered_set<const GraphNode*> disabled;   // of ours
  std::unordered_set<GraphAllocation*> backed;     // kept so for our launches
  uint64_t last_op = 0;                            // of the newest launch

  struct LaneStream {
    const Plan* plan;
    uint32_t lane;
    Stream* stream;
    uint64_t stream_number;  // tells whether `stream` still is the one made
  };
  std::vector<LaneStream> streams;
};

// Ours for a node of the graph it was made from; null when there is none of that type.
GraphNode* find_twin(GraphExec& exec, CUgraphNode handle, CUgraphNodeType type);

// Make `exec` do what `graph` says, or say why not.
CUresult update_exec(GraphExec& exec, const Graph& graph, CUgraphExecUpdateResultInfo* info);
// The same for one child graph node.
CUresult update_child(GraphExec& exec, GraphNode* ours, const Graph& child);

}  // namespace softgpu
