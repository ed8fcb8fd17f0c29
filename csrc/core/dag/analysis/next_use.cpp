#include "dag/analysis/next_use.h"

namespace tandem::dag::analysis {
namespace {

using Buffer = NextUses::Buffer;
using Use = NextUses::Use;

template <class See>
void each_use(const Window& window, See see) {
  for (NodeId id = window.first; id < window.last; ++id) {
    window.graph.each_access(id, [&](const Access& access) {
      // The last of all addresses has no end: a range of it alone would be empty.
      const uint64_t end = plus(access.address, access.bytes);
      if (access.address < end) see(id, access.address, end);
    });
  }
}

std::vector<Buffer> buffers(const Window& window) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  each_use(window, [&](NodeId, uint64_t begin, uint64_t end) { ranges.push_back({begin, end}); });
  std::sort(ranges.begin(), ranges.end());
  std::vector<Buffer> out;
  uint64_t until = 0;
  for (const auto& [begin, end] : ranges) {
    if (out.empty() || begin >= until) out.push_back({begin, 0, kNoUse, kNoUse});
    until = std::max(until, end);
    out.back().bytes = until - out.back().address;
  }
  return out;
}

uint32_t buffer_at(const std::vector<Buffer>& buffers, uint64_t address) {
  const auto after =
      std::upper_bound(buffers.begin(), buffers.end(), address,
                       [](uint64_t value, const Buffer& buffer) { return value < buffer.address; });
  return static_cast<uint32_t>(after - buffers.begin() - 1);
}

class Linker {
 public:
  Linker(const Window& window, bool periodic) : window_(window), periodic_(periodic) {
    out_.buffers = buffers(window);
    count_unknown();
  }

  NextUses run() {
    each_use(window_, [&](NodeId id, uint64_t address, uint64_t) {
      add(static_cast<uint32_t>(id - window_.first), buffer_at(out_.buffers, address));
    });
    for (const Buffer& buffer : out_.buffers) end(buffer);
    return std::move(out_);
  }

 private:
  // unknown_[i]: how many of the first i nodes may touch unknown memory.
  void count_unknown() {
    lost_ = window_.size() > 0 && window_.graph.lost_between(window_.first, window_.last - 1);
    unknown_.assign(1, 0);
    for (NodeId id = window_.first; id < window_.last; ++id)
      unknown_.push_back(unknown_.back() + (window_.op(id).flags & kUnresolved ? 1 : 0));
  }

  void add(uint32_t node, uint32_t number) {
    Buffer& buffer = out_.buffers[number];
    const uint32_t last = buffer.last_use;
    if (last != kNoUse && out_.uses[last].node == node) return;  // used twice by one node
    const uint32_t use = static_cast<uint32_t>(out_.uses.size());
    if (last == kNoUse) buffer.first_use = use;
    else link(out_.uses[last], use, node);
    buffer.last_use = use;
    out_.uses.push_back({node, number, kNoUse, false});
  }

  void link(Use& from, uint32_t next, uint32_t node) const {
    from.next = next;
    from.is_bound = lost_ || unknown_[node] > unknown_[from.node + 1];
  }

  void end(const Buffer& buffer) {
    Use& last = out_.uses[buffer.last_use];
    const uint32_t first = out_.uses[buffer.first_use].node;
    const uint32_t behind = unknown_.back() - unknown_[last.node + 1];
    last.is_bound = lost_ || behind > 0 || (periodic_ && unknown_[first] > 0);
    if (periodic_) last.next = buffer.first_use;
  }

  const Window& window_;
  bool periodic_;
  bool lost_ = false;
  std::vector<uint32_t> unknown_;
  NextUses out_;
};

}  // namespace

NextUses next_uses(const Window& window, bool periodic) { return Linker(window, periodic).run(); }

Distance distance(const NextUses& all, size_t use, const Schedule& schedule, NodeId first,
                  uint64_t period_ns) {
  const Use& from = all.uses[use];
  const Use& to = all.uses[from.next];
  const bool wraps = to.node <= from.node;
  const uint64_t end_ns = schedule.at(first + from.node).end_ns;
  const uint64_t start_ns = schedule.at(first + to.node).start_ns;
  const uint64_t count = schedule.first + schedule.times.size() - first;
  return {wraps ? count - from.node + to.node : to.node - from.node,
          minus(plus(start_ns, wraps ? period_ns : 0), end_ns)};
}

}  // namespace tandem::dag::analysis
