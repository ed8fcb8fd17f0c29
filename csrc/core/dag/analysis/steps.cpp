#include "dag/analysis/steps.h"

namespace tandem::dag::analysis {
namespace {

struct Change {
  uint64_t ns;
  Kind kind;
  bool begins;
};

uint32_t& count_of(Step& step, Kind kind) {
  if (is_kernel(kind)) return step.kernels;
  return is_transfer(kind) ? step.transfers : step.memsets;
}

std::vector<Change> changes(const Window& window, const Schedule& schedule, NodeId from) {
  std::vector<Change> out;
  for (NodeId id = from; id < window.last; ++id) {
    const Times& times = schedule.at(id);
    const Kind kind = window.op(id).kind;
    if (!runs_on_gpu(kind) || times.length() == 0) continue;
    out.push_back({times.start_ns, kind, true});
    out.push_back({times.end_ns, kind, false});
  }
  std::sort(out.begin(), out.end(), [](const Change& a, const Change& b) { return a.ns < b.ns; });
  return out;
}

}  // namespace

std::vector<Step> steps(const Window& window, const Schedule& schedule, NodeId from) {
  std::vector<Step> out;
  Step now{0, 0, 0, 0};
  for (const Change& change : changes(window, schedule, from)) {
    // Within the same ns, ends may come before their starts: the counts wrap, and come out right.
    count_of(now, change.kind) += change.begins ? 1 : UINT32_MAX;
    now.ns = change.ns;
    if (out.empty() || out.back().ns != now.ns) out.push_back(now);
    else out.back() = now;
  }
  return out;
}

}  // namespace tandem::dag::analysis
