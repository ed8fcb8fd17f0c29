// What the host waited for, and how long: a wait's duration is measured on the host. Where it is
// missing, the wait lasts until what it waits for ended in the schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

struct Wait {
  NodeId node;
  // What ended last of what was waited for; kNoNode = all of it had ended before.
  NodeId reason;
  uint64_t waited_ns;
};

// Of the window, in order: waits of the host, and operations that the host waited for.
std::vector<Wait> waits(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
