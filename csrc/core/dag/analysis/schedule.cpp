#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {
namespace {

struct Thread {
  uint64_t handed_ns = 0;  // its latest submission
  NodeId wait = kNoNode;   // its latest wait
};

class Reconstruction {
 public:
  Reconstruction(const Window& window, NodeId from, const std::vector<Times>& measured)
      : window_(window), measured_(measured) {
    const size_t count = window.last - from;
    out_.first = from;
    out_.times.reserve(count);
    out_.handed_ns.reserve(count);
    out_.after_wait.reserve(count);
  }

  void add(NodeId id) {
    const Operation& op = window_.op(id);
    Thread& thread = thread_of(op);
    thread.handed_ns = std::max(thread.handed_ns, op.submitted_ns);
    out_.handed_ns.push_back(thread.handed_ns);
    out_.after_wait.push_back(back(id, thread.wait));
    out_.times.push_back(times(id, op, thread.handed_ns));
    if (holds_host(op)) thread.wait = id;
  }

  Schedule take() { return std::move(out_); }

 private:
  static uint32_t back(NodeId id, NodeId wait) {
    return wait == kNoNode || id - wait > UINT32_MAX ? 0 : static_cast<uint32_t>(id - wait);
  }

  Thread& thread_of(const Operation& op) {
    const size_t index = op.thread == kNone ? 0 : size_t{op.thread} + 1;
    if (index >= threads_.size()) threads_.resize(index + 1);
    return threads_[index];
  }

  Times times(NodeId id, const Operation& op, uint64_t handed_ns) const {
    if (const Times* known = measured(id)) return *known;
    uint64_t ready_ns = handed_ns;
    window_.graph.each_edge(id, [&](NodeId from, EdgeKind) {
      if (out_.has(from)) ready_ns = std::max(ready_ns, out_.at(from).end_ns);
    });
    // A wait that measurably took longer waited for more than is known.
    if (is_wait(op.kind)) return {handed_ns, std::max(ready_ns, plus(handed_ns, op.duration_ns))};
    return {ready_ns, plus(ready_ns, op.duration_ns)};
  }

  const Times* measured(NodeId id) const {
    if (measured_.empty() || !window_.has(id)) return nullptr;
    const Times& times = measured_[id - window_.first];
    return times.end_ns == 0 || times.end_ns < times.start_ns ? nullptr : &times;
  }

  const Window& window_;
  const std::vector<Times>& measured_;
  std::vector<Thread> threads_;
  Schedule out_;
};

}  // namespace

Schedule reconstruct(const Window& window, NodeId from, const std::vector<Times>& measured) {
  Reconstruction work(window, from, measured);
  for (NodeId id = from; id < window.last; ++id) work.add(id);
  return work.take();
}

}  // namespace tandem::dag::analysis
