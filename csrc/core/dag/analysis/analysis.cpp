#include "dag/analysis/analysis.h"

#include "dag/analysis/slack.h"

namespace tandem::dag::analysis {

Analysis analyse(const Window& window, NodeId from, const std::vector<Times>& measured) {
  Analysis out{window.first, window.last, unknown(window), reconstruct(window, from, measured),
               {}, {}, {}, {}};
  out.critical = critical_path(window, out.schedule);
  out.gpu_critical = longest_by_order(window, out.schedule);
  out.data_critical = longest_by_data(window, out.schedule);
  out.slack_ns = slack(window, out.schedule);
  return out;
}

}  // namespace tandem::dag::analysis
