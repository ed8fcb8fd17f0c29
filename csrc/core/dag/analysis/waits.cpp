#include "dag/analysis/waits.h"

namespace tandem::dag::analysis {
namespace {

// Returns the predecessor by order edges that ended last, if it ended after `after_ns`.
NodeId last_of(const Window& window, const Schedule& schedule, NodeId id, uint64_t after_ns) {
  NodeId found = kNoNode;
  window.graph.each_edge(id, [&](NodeId from, EdgeKind) {
    if (!schedule.has(from) || schedule.at(from).end_ns <= after_ns) return;
    after_ns = schedule.at(from).end_ns;
    found = from;
  });
  return found;
}

bool takes_time(const Schedule& schedule, NodeId id) { return schedule.at(id).length() > 0; }

// Goes back over event records and waits, which take no time, to the operation they stand for.
NodeId reason(const Window& window, const Schedule& schedule, NodeId id, uint64_t after_ns) {
  NodeId found = last_of(window, schedule, id, after_ns);
  while (found != kNoNode && !takes_time(schedule, found))
    found = last_of(window, schedule, found, after_ns);
  return found;
}

Wait wait(const Window& window, const Schedule& schedule, NodeId id) {
  const Operation& op = window.op(id);
  const uint64_t since_ns = schedule.handed(id);
  if (!is_wait(op.kind)) return {id, id, minus(schedule.at(id).end_ns, since_ns)};
  const uint64_t known_ns = op.duration_ns;
  const NodeId from = reason(window, schedule, id, since_ns);
  return {id, from, known_ns ? known_ns : minus(schedule.at(id).end_ns, since_ns)};
}

}  // namespace

std::vector<Wait> waits(const Window& window, const Schedule& schedule) {
  std::vector<Wait> out;
  for (NodeId id = window.first; id < window.last; ++id)
    if (holds_host(window.op(id))) out.push_back(wait(window, schedule, id));
  return out;
}

}  // namespace tandem::dag::analysis
