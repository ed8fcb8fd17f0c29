#include "dag/analysis/longest_path.h"

namespace tandem::dag::analysis {
namespace {

class Search {
 public:
  Search(const Window& window, const Schedule& schedule)
      : window_(window),
        schedule_(schedule),
        starts_(window.size()),
        ends_(window.size()),
        from_(window.size(), kNoNode) {}

  // Searches along the edges for which each(id, see) calls see(from, kind).
  template <class Each>
  LongestPath run(Each each) {
    for (NodeId id = window_.first; id < window_.last; ++id) visit(id, each);
    LongestPath path;
    NodeId id = kNoNode;
    for (NodeId end = window_.first; end < window_.last; ++end) {
      if (id == kNoNode || at(end) > at(id)) id = end;
    }
    if (id != kNoNode) path.length_ns = at(id);
    for (; id != kNoNode; id = from_[id - window_.first]) path.nodes.push_back(id);
    std::reverse(path.nodes.begin(), path.nodes.end());
    return path;
  }

 private:
  uint64_t at(NodeId id) const { return ends_[id - window_.first]; }
  uint64_t on_gpu_ns(NodeId id) const {
    return runs_on_gpu(window_.op(id).kind) ? schedule_.at(id).length() : 0;
  }

  // An operation that overlaps another begins with it, at the earliest, and ends after it.
  template <class Each>
  void visit(NodeId id, Each each) {
    const size_t own = id - window_.first;
    NodeId beside = kNoNode;
    each(id, [&](NodeId from, EdgeKind kind) {
      if (!window_.has(from)) return;
      const bool overlaps = kind == EdgeKind::kOverlap;
      if (overlaps) beside = from;
      const uint64_t free_ns = overlaps ? starts_[from - window_.first] : at(from);
      if (free_ns < starts_[own]) return;
      starts_[own] = free_ns;
      from_[own] = overlaps ? from_[from - window_.first] : from;
    });
    ends_[own] = plus(starts_[own], on_gpu_ns(id));
    if (beside == kNoNode || at(beside) <= ends_[own]) return;
    ends_[own] = at(beside);
    from_[own] = beside;
  }

  const Window& window_;
  const Schedule& schedule_;
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> ends_;
  std::vector<NodeId> from_;
};

bool all_resolved(const Window& window) {
  if (window.size() == 0) return true;
  bool resolved = !window.graph.lost_between(window.first, window.last - 1);
  for (NodeId id = window.first; id < window.last && resolved; ++id) {
    resolved = !(window.op(id).flags & kUnresolved);
    window.graph.each_data_edge(
        id, [&](NodeId, EdgeKind kind) { resolved &= kind != EdgeKind::kUnknownData; });
  }
  return resolved;
}

}  // namespace

LongestPath longest_by_order(const Window& window, const Schedule& schedule) {
  return Search(window, schedule).run([&](NodeId id, auto see) {
    window.graph.each_edge(id, see);
  });
}

std::optional<LongestPath> longest_by_data(const Window& window, const Schedule& schedule) {
  if (!all_resolved(window)) return std::nullopt;
  return Search(window, schedule).run([&](NodeId id, auto see) {
    window.graph.each_data_edge(id, see);
  });
}

}  // namespace tandem::dag::analysis
