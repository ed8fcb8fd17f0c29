#include "dag/analysis/analysis.h"

#include "dag/analysis/slack.h"

namespace tandem::dag::analysis {

Analysis analyse(const Window& window, const Options& options) {
  Analysis out{};
  out.first = window.first;
  out.last = window.last;
  out.unknown = unknown(window);
  out.schedule = reconstruct(window, options.since, options.measured);
  const Schedule& schedule = out.schedule;
  out.critical = critical_path(window, schedule, options.held);
  out.gpu_critical = longest_by_order(window, schedule);
  out.data_critical = longest_by_data(window, schedule);
  out.slack_ns = slack(window, schedule);
  const std::vector<Step> own_steps = steps(window, schedule, window.first);
  out.width = width(own_steps);
  out.overlap = overlap(own_steps);
  out.classes = classes(window, schedule, options.device);
  out.next_uses = next_uses(window, options.periodic);
  out.gaps = gaps(window, schedule, options.held, options.pause_ns);
  out.gap_places = gap_places(out.gaps, options.iterations, options.least_gap_ns);
  out.launch_bound = launch_bound(window, schedule, out.gaps);
  out.waits = waits(window, schedule);
  return out;
}

}  // namespace tandem::dag::analysis
