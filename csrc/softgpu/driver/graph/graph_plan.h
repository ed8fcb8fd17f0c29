// A graph laid out for launching: its work in an order that respects all edges, spread over lanes.
//
// A lane becomes a stream, so whatever lies in one lane is ordered without being said; steps wait
// for steps of other lanes by number. Independent branches get lanes of their own, up to kMaxLanes
// of them, and a lane is used again by whatever comes after its last step anyway. Child graphs are
// laid out in place; nodes that only order others cost nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "graph.h"

namespace softgpu {

constexpr uint32_t kMaxLanes = 32;

struct Step {
  GraphNode* node;
  uint32_t work;  // which of the node's
  uint32_t lane;
  std::vector<uint32_t> after;  // steps of other lanes; none in a lane either: the launch itself
  bool first_in_lane;
};

struct Lane {
  Context* context;   // as a node's; null: that of the stream that it is launched into
  bool own_priority;  // else the stream's
  int priority;
};

struct Plan {
  std::vector<Step> steps;
  std::vector<Lane> lanes;
  std::vector<uint32_t> ends;   // the last step of each lane that nothing waits for
  GraphNode* culprit = nullptr;  // there is no plan, because of this one: a cycle, mostly
};

Plan make_plan(const Graph& graph, bool node_priorities);

}  // namespace softgpu
