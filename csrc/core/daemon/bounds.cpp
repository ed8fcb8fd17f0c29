#include "daemon/bounds.h"

#include <algorithm>
#include <vector>

#include "daemon/resolve.h"
#include "dag/records.h"

namespace tandem::daemon {
namespace {

namespace analysis = dag::analysis;

// Adds the launches and the buffers that they were given. That is enough to estimate what bounds
// their speed; nothing breaks if the buffers lead to further memory. Data edges are not needed.
void fill(dag::Graph& graph, const Window& window, const std::vector<ResolvedLaunch>& resolved) {
  dag::Order order(graph);
  dag::Records records(order);
  auto next = resolved.begin();
  for (const shm::Record& record : window.records) {
    const bool is_next = next != resolved.end() && next->record == &record;
    const dag::NodeId id = records.take(record, is_next && next->is_direct);
    if (!is_next) continue;
    if (id != dag::kNoNode)
      for (const dag::Access& access : next->accesses) graph.add_access(access);
    ++next;
  }
}

// Shrinks durations that do not fit. They are averages that include times when others ran and
// kernels took longer, but an iteration recorded alone cannot have taken longer than it did.
void fit(analysis::Schedule& schedule, const Window& window) {
  uint64_t end_ns = 0;
  for (const analysis::Times& times : schedule.times) end_ns = std::max(end_ns, times.end_ns);
  if (window.iterations == 0 || end_ns <= window.end_ns) return;
  const double room = static_cast<double>(window.end_ns - window.begin_ns) /
                      static_cast<double>(end_ns - window.begin_ns);
  for (analysis::Times& times : schedule.times) {
    const double length_ns = room * static_cast<double>(times.length());
    times.end_ns = times.start_ns + static_cast<uint64_t>(length_ns);
  }
}

}  // namespace

Bounds bounds_of(const Window& window, const Sample& sample, const analysis::Device& device) {
  dag::Graph graph;
  fill(graph, window, resolve(window, sample));
  const analysis::Window all{graph, graph.begin(), graph.end()};
  analysis::Schedule schedule = analysis::reconstruct(all, all.first, {});
  fit(schedule, window);
  const auto classes = analysis::classes(all, schedule, device);
  Bounds out;
  std::copy(std::begin(classes.share), std::end(classes.share), out.share);
  for (dag::NodeId id = all.first; id < all.last; ++id) {
    if (!analysis::runs_on_gpu(all.op(id).kind)) continue;
    ++out.operations;
    out.untimed += all.op(id).duration_ns == 0;
  }
  return out;
}

}  // namespace tandem::daemon
