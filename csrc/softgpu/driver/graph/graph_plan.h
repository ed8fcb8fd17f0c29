// A graph laid out for launching: its work in an order that respects all edges, spread over lanes.
//
// A lane becomes a stream, so steps in the same lane need no explicit order; a step waits for steps
// of other lanes by number. Independent branches get lanes of their own, up to kMaxLanes of them,
// and a lane is reused by steps that come after its last step anyway. Child graphs are laid out in
// place; nodes that only order others cost nothing, unless they join many branches.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.h"

namespace softgpu {

constexpr uint32_t kMaxLanes = 32;

struct Step {
  GraphNode* node;
  uint32_t work;  // index in the node's work
  uint32_t lane;
  // Steps of other lanes; if empty and first in its lane: the launch itself.
  std::vector<uint32_t> after;
  bool first_in_lane;
};

struct Lane {
  Context* context;   // as in GraphNode; null: the context of the stream launched into
  bool own_priority;  // otherwise the stream's
  int priority;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<Lane> lanes;
  std::vector<uint32_t> ends;  // last steps of the lanes that nothing waits for
  // Set if there is no plan: the node that prevents it, mostly by a cycle.
  GraphNode* culprit = nullptr;
};

Plan make_plan(const Graph& graph, bool node_priorities);

}  // namespace softgpu
