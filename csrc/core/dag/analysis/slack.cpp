#include "dag/analysis/slack.h"

#include "dag/analysis/critical_path.h"

namespace tandem::dag::analysis {
namespace {

// Its length once everything that it waits for has ended.
uint64_t own_ns(const Window& window, const Schedule& schedule, NodeId id) {
  if (!is_wait(window.op(id).kind)) return schedule.at(id).length();
  uint64_t free_ns = schedule.at(id).start_ns;
  window.graph.each_edge(id, [&](NodeId from, EdgeKind) {
    if (schedule.has(from)) free_ns = std::max(free_ns, schedule.at(from).end_ns);
  });
  return minus(schedule.at(id).end_ns, free_ns);
}

}  // namespace

std::vector<uint64_t> slack(const Window& window, const Schedule& schedule) {
  std::vector<uint64_t> latest(window.size(), extent(window, schedule).end_ns);  // ends
  const auto limit = [&](NodeId id, uint64_t end_ns) {
    if (!window.has(id)) return;
    uint64_t& own = latest[id - window.first];
    own = std::min(own, end_ns);
  };
  for (NodeId id = window.last; id-- > window.first;) {
    uint64_t& own = latest[id - window.first];
    const uint64_t start_ns = minus(own, own_ns(window, schedule, id));
    window.graph.each_edge(id, [&](NodeId from, EdgeKind) { limit(from, start_ns); });
    const NodeId wait = schedule.wait_before(id);
    if (wait != kNoNode && window.has(wait))
      limit(wait, minus(start_ns, minus(schedule.handed(id), schedule.at(wait).end_ns)));
    own = minus(own, schedule.at(id).end_ns);
  }
  return latest;
}

}  // namespace tandem::dag::analysis
