#include "dag/analysis/classes.h"

namespace tandem::dag::analysis {
namespace {

using Range = std::pair<uint64_t, uint64_t>;

// Number of distinct bytes that the node's accesses name.
double bytes_of(const Window& window, NodeId id, std::vector<Range>& ranges) {
  ranges.clear();
  window.graph.each_access(id, [&](const Access& access) {
    ranges.push_back({access.address, plus(access.address, access.bytes)});
  });
  std::sort(ranges.begin(), ranges.end());
  double sum = 0;
  uint64_t counted = 0;  // addresses below this are counted
  for (const auto& [begin, end] : ranges) {
    sum += static_cast<double>(minus(end, std::max(begin, counted)));
    counted = std::max(counted, end);
  }
  return sum;
}

Class by_traffic(double bytes, double duration_ns, const Device& device) {
  const double share =
      bytes / (static_cast<double>(device.bandwidth_bytes_per_s) * duration_ns * 1e-9);
  if (share < device.compute_share) return Class::kCompute;
  return share >= device.memory_share && share <= 1 ? Class::kMemory : Class::kUnknown;
}

Class class_of(const Window& window, const Schedule& schedule, const Device& device, NodeId id,
               std::vector<Range>& ranges) {
  const Operation& op = window.op(id);
  if (!runs_on_gpu(op.kind)) return Class::kNone;
  if (!is_kernel(op.kind)) return Class::kCopy;
  if (op.kind == Kind::kGraph) return Class::kUnknown;
  const uint64_t duration_ns = schedule.at(id).length();
  if (op.blocks != 0 && op.blocks < device.sm_count) return Class::kSmall;
  if (duration_ns == 0) return Class::kUnknown;
  if (duration_ns < device.small_ns) return Class::kSmall;
  if (op.flags & kUnresolved || device.bandwidth_bytes_per_s == 0) return Class::kUnknown;
  return by_traffic(bytes_of(window, id, ranges), static_cast<double>(duration_ns), device);
}

}  // namespace

Classes classes(const Window& window, const Schedule& schedule, const Device& device) {
  Classes out;
  out.of.reserve(window.size());
  std::vector<Range> ranges;
  double total_ns = 0;
  for (NodeId id = window.first; id < window.last; ++id) {
    const Class found = class_of(window, schedule, device, id, ranges);
    out.of.push_back(found);
    if (found == Class::kNone) continue;
    const double length_ns = static_cast<double>(schedule.at(id).length());
    out.share[static_cast<uint32_t>(found)] += length_ns;
    total_ns += length_ns;
  }
  out.dominating = Class::kNone;
  for (uint32_t i = 0; i < kClassCount && total_ns > 0; ++i) {
    out.share[i] /= total_ns;
    if (out.share[i] > 0.5) out.dominating = static_cast<Class>(i);
  }
  return out;
}

}  // namespace tandem::dag::analysis
