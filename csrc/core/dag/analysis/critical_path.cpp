#include "dag/analysis/critical_path.h"

#include "dag/analysis/held.h"

namespace tandem::dag::analysis {
namespace {

// Waits have no length of their own on the path: their time belongs to what they wait for.
uint64_t began(const Window& window, const Schedule& schedule, NodeId id) {
  const Times& times = schedule.at(id);
  return is_wait(window.op(id).kind) ? times.end_ns : times.start_ns;
}

NodeId last_to_end(const Window& window, const Schedule& schedule) {
  NodeId found = window.first;
  for (NodeId id = window.first; id < window.last; ++id)
    if (schedule.at(id).end_ns >= schedule.at(found).end_ns) found = id;
  return found;
}

// Returns the predecessor by order edges that the node waited for last; kNoNode if its submission
// came later.
NodeId held_by(const Window& window, const Schedule& schedule, NodeId id) {
  NodeId found = kNoNode;
  uint64_t latest_ns = schedule.handed(id);
  window.graph.each_edge(id, [&](NodeId from, EdgeKind) {
    if (!schedule.has(from) || schedule.at(from).end_ns < latest_ns) return;
    latest_ns = schedule.at(from).end_ns;
    found = from;
  });
  return found;
}

bool is_mere_order(Kind kind) { return kind == Kind::kEventRecord || kind == Kind::kEventWait; }

// Returns the predecessor by order edges that ended last, whenever that was; kNoNode if there is
// none.
NodeId last_before(const Window& window, const Schedule& schedule, NodeId id) {
  NodeId found = kNoNode;
  window.graph.each_edge(id, [&](NodeId from, EdgeKind) {
    if (!schedule.has(from)) return;
    if (found == kNoNode || schedule.at(from).end_ns >= schedule.at(found).end_ns) found = from;
  });
  return found;
}

class Walk {
 public:
  Walk(const Window& window, const Schedule& schedule, const std::vector<Times>& held)
      : window_(window), schedule_(schedule), held_(held), extent_(extent(window, schedule)) {}

  CriticalPath run() {
    path_.total_ns = extent_.length();
    NodeId id = window_.size() == 0 ? kNoNode : last_to_end(window_, schedule_);
    while (id != kNoNode) {
      path_.nodes.push_back(id);
      count_own(id);
      id = before(id);
    }
    std::reverse(path_.nodes.begin(), path_.nodes.end());
    return std::move(path_);
  }

 private:
  void count_own(NodeId id) {
    const Kind kind = window_.op(id).kind;
    if (is_wait(kind)) return;
    share_of(kind) += schedule_.at(id).length();
  }

  void count_host(uint64_t since_ns, uint64_t handed_ns) {
    const uint64_t held_ns = held_between(held_, since_ns, handed_ns);
    path_.held_ns += held_ns;
    path_.host_ns += minus(handed_ns, since_ns) - held_ns;
  }

  uint64_t& share_of(Kind kind) {
    if (runs_on_gpu(kind)) return path_.gpu_ns;
    return kind == Kind::kMemOp ? path_.other_ns : path_.host_ns;
  }

  NodeId before(NodeId id) {
    const uint64_t start_ns = began(window_, schedule_, id);
    if (const NodeId from = untimed_before(id); from != kNoNode) return before_untimed(id, from);
    const NodeId from = held_by(window_, schedule_, id);
    if (from == kNoNode) return before_submission(id, start_ns);
    path_.other_ns += minus(start_ns, schedule_.at(from).end_ns);
    if (window_.has(from)) return from;
    path_.earlier_ns += minus(schedule_.at(from).end_ns, extent_.start_ns);
    return kNoNode;
  }

  // Returns the GPU work without a duration through which the path continues, or kNoNode. If a wait
  // ended later than everything known, that is the work it must have waited for; from there on it
  // is what precedes that work, back to the thread's last wait.
  NodeId untimed_before(NodeId id) const {
    const bool is_lagging = is_wait(window_.op(id).kind) && lag_ns(id) > 0;
    const bool goes_on = in_untimed_ && is_untimed(id);
    if (!is_lagging && !goes_on) return kNoNode;
    NodeId from = last_before(window_, schedule_, id);
    while (from != kNoNode && window_.has(from) && is_mere_order(window_.op(from).kind))
      from = last_before(window_, schedule_, from);
    if (from == kNoNode || !window_.has(from) || !is_untimed(from)) return kNoNode;
    const NodeId wait = schedule_.wait_before(id);
    return wait == kNoNode || wait < from ? from : kNoNode;
  }

  NodeId before_untimed(NodeId id, NodeId from) {
    const uint64_t since_ns = schedule_.at(from).end_ns, end_ns = began(window_, schedule_, id);
    const uint64_t handed_ns =
        std::clamp(schedule_.handed(id), since_ns, std::max(since_ns, end_ns));
    count_host(since_ns, handed_ns);
    (is_wait(window_.op(id).kind) ? path_.gpu_ns : path_.other_ns) += minus(end_ns, handed_ns);
    in_untimed_ = true;
    return from;
  }

  // For a wait: how much later it ended than everything it is known to have waited for.
  uint64_t lag_ns(NodeId id) const {
    const NodeId from = last_before(window_, schedule_, id);
    const uint64_t known_ns = from == kNoNode ? 0 : schedule_.at(from).end_ns;
    return minus(schedule_.at(id).end_ns, std::max(known_ns, schedule_.handed(id)));
  }

  bool is_untimed(NodeId id) const {
    return runs_on_gpu(window_.op(id).kind) && schedule_.at(id).length() == 0;
  }

  NodeId before_submission(NodeId id, uint64_t start_ns) {
    const uint64_t handed_ns = schedule_.handed(id);
    const NodeId wait = schedule_.wait_before(id);
    const bool in_window = wait != kNoNode && window_.has(wait);
    const uint64_t since_ns = in_window ? schedule_.at(wait).end_ns : extent_.start_ns;
    path_.other_ns += minus(start_ns, std::max(handed_ns, extent_.start_ns));
    count_host(since_ns, handed_ns);
    return in_window ? wait : kNoNode;
  }

  const Window& window_;
  const Schedule& schedule_;
  const std::vector<Times>& held_;
  Times extent_;
  bool in_untimed_ = false;  // the path came through GPU work without a duration
  CriticalPath path_;
};

}  // namespace

CriticalPath critical_path(const Window& window, const Schedule& schedule,
                           const std::vector<Times>& held) {
  return Walk(window, schedule, held).run();
}

Times extent(const Window& window, const Schedule& schedule) {
  if (window.size() == 0) return {0, 0};
  Times out{UINT64_MAX, 0};
  for (NodeId id = window.first; id < window.last; ++id) {
    out.start_ns = std::min(out.start_ns, schedule.at(id).start_ns);
    out.end_ns = std::max(out.end_ns, schedule.at(id).end_ns);
  }
  return out;
}

}  // namespace tandem::dag::analysis
