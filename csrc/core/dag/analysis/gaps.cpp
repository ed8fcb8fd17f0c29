#include "dag/analysis/gaps.h"

#include "dag/analysis/critical_path.h"
#include "dag/analysis/held.h"

namespace tandem::dag::analysis {
namespace {

constexpr double kLeastFoundIdle = 0.5;
constexpr double kLeastIdle = 0.1;

// The GPU operations of the window that take time, sorted by their start: one of them ends each
// gap.
std::vector<NodeId> by_start(const Window& window, const Schedule& schedule) {
  std::vector<NodeId> out;
  for (NodeId id = window.first; id < window.last; ++id)
    if (runs_on_gpu(window.op(id).kind) && schedule.at(id).length() > 0) out.push_back(id);
  std::stable_sort(out.begin(), out.end(), [&](NodeId a, NodeId b) {
    return schedule.at(a).start_ns < schedule.at(b).start_ns;
  });
  return out;
}

// Times of the predecessor by order edges that ended last; 0, 0 if there is none.
Times last_reason(const Window& window, const Schedule& schedule, NodeId id, Kind* kind) {
  Times latest{0, 0};
  window.graph.each_edge(id, [&](NodeId from, EdgeKind) {
    if (!schedule.has(from) || schedule.at(from).end_ns < latest.end_ns) return;
    latest = schedule.at(from);
    *kind = window.op(from).kind;
  });
  return latest;
}

// True if all its predecessors by order edges had ended when it was submitted.
bool found_idle(const Window& window, const Schedule& schedule, NodeId id) {
  Kind kind{};
  return last_reason(window, schedule, id, &kind).end_ns <= schedule.handed(id);
}

class Causes {
 public:
  Causes(const Window& window, const Schedule& schedule, const std::vector<Times>& held,
         uint64_t pause_ns)
      : window_(window), schedule_(schedule), held_(held), pause_ns_(pause_ns) {}

  Gap explain(uint64_t start_ns, uint64_t end_ns, NodeId next) const {
    Gap gap{start_ns, end_ns, held_between(held_, start_ns, end_ns), next, GapCause::kOther};
    gap.cause = gap.held_ns > gap.length() / 2 ? GapCause::kHeld : cause(gap);
    return gap;
  }

 private:
  GapCause cause(const Gap& gap) const {
    // Submitted within the gap: what remains of the gap after that is the GPU's own latency.
    const uint64_t handed_ns = schedule_.handed(gap.next);
    Kind kind{};
    const Times reason = last_reason(window_, schedule_, gap.next, &kind);
    const uint64_t free_ns = std::max(handed_ns, reason.end_ns);
    if (minus(free_ns, gap.start_ns) <= gap.length() / 2) return GapCause::kOther;
    if (reason.end_ns > handed_ns) {
      return kind == Kind::kHostFunc ? GapCause::kFunction : GapCause::kOther;
    }
    if (gap.length() > pause_ns_) return GapCause::kPause;
    const NodeId wait = schedule_.wait_before(gap.next);
    const bool synced = wait != kNoNode && schedule_.at(wait).end_ns >= gap.start_ns;
    return synced ? GapCause::kSync : GapCause::kHost;
  }

  const Window& window_;
  const Schedule& schedule_;
  const std::vector<Times>& held_;
  uint64_t pause_ns_;
};

}  // namespace

std::vector<Gap> gaps(const Window& window, const Schedule& schedule,
                      const std::vector<Times>& held, uint64_t pause_ns) {
  std::vector<Gap> out;
  const Causes causes(window, schedule, held, pause_ns);
  const std::vector<NodeId> starts = by_start(window, schedule);
  const std::vector<Step> all = steps(window, schedule, schedule.first);
  size_t next = 0;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i].running() != 0) continue;
    const uint64_t end_ns = all[i + 1].ns;
    while (next < starts.size() && schedule.at(starts[next]).start_ns < end_ns) ++next;
    // Otherwise the operation that ended the gap lies before the window.
    if (next < starts.size() && schedule.at(starts[next]).start_ns == end_ns)
      out.push_back(causes.explain(all[i].ns, end_ns, starts[next]));
  }
  return out;
}

LaunchBound launch_bound(const Window& window, const Schedule& schedule,
                         const std::vector<Gap>& gaps) {
  LaunchBound out;
  for (NodeId id = window.first; id < window.last; ++id) {
    if (!runs_on_gpu(window.op(id).kind)) continue;
    ++out.operations;
    out.found_idle += found_idle(window, schedule, id);
  }
  double idle_ns = 0;
  for (const Gap& gap : gaps)
    if (gap.cause <= GapCause::kSync) idle_ns += static_cast<double>(gap.length());
  const uint64_t length_ns = extent(window, schedule).length();
  if (out.operations == 0 || length_ns == 0) return out;
  out.share = static_cast<double>(out.found_idle) / static_cast<double>(out.operations);
  out.idle_share = std::min(1.0, idle_ns / static_cast<double>(length_ns));
  out.verdict = out.share >= kLeastFoundIdle && out.idle_share >= kLeastIdle;
  return out;
}

}  // namespace tandem::dag::analysis
