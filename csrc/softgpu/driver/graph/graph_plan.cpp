#include "graph_plan.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

namespace softgpu {
namespace {

using Steps = std::vector<uint32_t>;

// A node that only orders others and has more predecessors than this becomes a step of its own;
// otherwise every node behind a wide join would list all of them.
constexpr size_t kMaxPassedOn = 8;

// The context for nodes without one of their own (host functions).
Context* first_context(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (node->context) return node->context;
    for (const auto& inner : node->inner) {
      if (Context* context = first_context(*inner)) return context;
    }
  }
  return nullptr;
}

class Planner {
 public:
  Planner(Context* usual, bool node_priorities)
      : usual_(usual), node_priorities_(node_priorities) {}

  Plan run(const Graph& graph) {
    add_graph(graph, {});
    for (uint32_t lane = 0; lane < plan_.lanes.size(); ++lane) {
      if (!waited_for_.count(tails_[lane])) plan_.ends.push_back(tails_[lane]);
    }
    return std::move(plan_);
  }

 private:
  // A step's vector clock: for each lane, the last step that is known to be done before it begins.
  using Clock = std::array<uint32_t, kMaxLanes>;  // step + 1; 0: nothing

  // Returns the steps that must be done for the graph to be done.
  Steps add_graph(const Graph& graph, const Steps& before) {
    const std::vector<GraphNode*> order = in_order(graph);
    if (order.size() < graph.nodes.size()) {
      plan_.culprit = in_cycle(graph, order);
      return {};
    }
    std::unordered_map<const GraphNode*, Steps> done;
    Steps leaves;
    for (GraphNode* node : order) {
      if (plan_.culprit) return {};
      Steps after;
      for (const GraphEdge& edge : node->dependencies) append(&after, done[edge.node]);
      if (node->dependencies.empty()) after = before;
      Steps& last = done[node] = add_node(node, unique(after));
      if (node->dependents.empty()) append(&leaves, last);
    }
    return graph.nodes.empty() ? before : unique(leaves);
  }

  Steps add_node(GraphNode* node, const Steps& after) {
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH) return add_graph(*node->inner.front(), after);
    const bool acts = !node->work.empty() || node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    if (!acts && after.size() <= kMaxPassedOn) return after;
    uint32_t last = add_step(node, 0, after);
    for (uint32_t i = 1; i < node->work.size(); ++i) last = add_step(node, i, {last});
    return {last};
  }

  uint32_t add_step(GraphNode* node, uint32_t work, const Steps& after) {
    const auto number = static_cast<uint32_t>(plan_.steps.size());
    Clock clock{};
    for (const uint32_t step : after) merge(&clock, clocks_[step]);
    const uint32_t lane = choose_lane(lane_of(*node), clock);
    if (lane == kMaxLanes) {
      plan_.culprit = node;
      return 0;
    }
    const bool first = lane == tails_.size();
    if (first) tails_.push_back(number);
    Step step{node, work, lane, {}, first};
    const uint32_t tail = tails_[lane];
    if (!first) merge(&clock, clocks_[tail]);
    for (const uint32_t before : after) {
      if (plan_.steps[before].lane == lane || known_through_another(before, after)) continue;
      step.after.push_back(before);
      waited_for_.insert(before);
    }
    tails_[lane] = number;
    clock[lane] = number + 1;
    clocks_.push_back(clock);
    plan_.steps.push_back(std::move(step));
    return number;
  }

  // The latest lane whose last step comes before this one anyway; if there is none, a new lane.
  uint32_t choose_lane(const Lane& wanted, const Clock& clock) {
    uint32_t best = kMaxLanes, spare = kMaxLanes;
    for (uint32_t lane = 0; lane < tails_.size(); ++lane) {
      const Lane& have = plan_.lanes[lane];
      if (have.context != wanted.context || have.own_priority != wanted.own_priority ||
          have.priority != wanted.priority) {
        continue;
      }
      if (spare == kMaxLanes || tails_[lane] < tails_[spare]) spare = lane;
      if (clock[lane] != tails_[lane] + 1) continue;
      if (best == kMaxLanes || tails_[lane] > tails_[best]) best = lane;
    }
    if (best < kMaxLanes) return best;
    if (tails_.size() < kMaxLanes) {
      plan_.lanes.push_back(wanted);
      return static_cast<uint32_t>(tails_.size());
    }
    return spare;  // behind an unrelated branch; kMaxLanes: none for this context
  }

  Lane lane_of(const GraphNode& node) const {
    Lane lane{node.context ? node.context : usual_, false, 0};
    const auto priority = node.attributes.find(CU_LAUNCH_ATTRIBUTE_PRIORITY);
    if (node_priorities_ && priority != node.attributes.end()) {
      lane.own_priority = true;
      lane.priority = priority->second.priority;
    }
    return lane;
  }

  bool known_through_another(uint32_t step, const Steps& after) const {
    const uint32_t lane = plan_.steps[step].lane;
    return std::any_of(after.begin(), after.end(), [&](uint32_t other) {
      return other != step && clocks_[other][lane] > step;
    });
  }

  static void merge(Clock* into, const Clock& from) {
    for (uint32_t i = 0; i < kMaxLanes; ++i) (*into)[i] = std::max((*into)[i], from[i]);
  }
  static void append(Steps* to, const Steps& from) {
    to->insert(to->end(), from.begin(), from.end());
  }
  static Steps unique(Steps steps) {
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    return steps;
  }
  static GraphNode* in_cycle(const Graph& graph, const std::vector<GraphNode*>& order) {
    const std::unordered_set<const GraphNode*> fine(order.begin(), order.end());
    for (const auto& node : graph.nodes) {
      if (!fine.count(node.get())) return node.get();
    }
    return nullptr;
  }

  Context* const usual_;
  const bool node_priorities_;
  Plan plan_;
  std::vector<uint32_t> tails_;  // the last step of each lane
  std::vector<Clock> clocks_;    // of each step
  std::unordered_set<uint32_t> waited_for_;
};

}  // namespace

Plan make_plan(const Graph& graph, bool node_priorities) {
  return Planner(first_context(graph), node_priorities).run(graph);
}

}  // namespace softgpu
