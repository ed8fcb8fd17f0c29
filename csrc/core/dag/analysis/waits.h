// What the host waited for. How long is known: a wait's duration is measured on the host. Where it is
// missing, until what it waits for ended by the schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

struct Wait {
  NodeId node;
  NodeId reason;  // the last to end of what was waited for; kNoNode = it had all ended before
  uint64_t waited_ns;
};

// Of the window, in order: waits of the host, and operations that the host waited for.
std::vector<Wait> waits(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
