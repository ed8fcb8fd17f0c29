// How much later an operation could begin without lengthening the window: its latest start minus
// its start (backward pass of the critical path method, Kelley and Walker 1959; "total float").
//
// A delay moves every successor by order edges and, if a thread waits for the operation, all that
// the thread submits afterwards: the host is assumed to need the same time between waits and calls.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

// In ns, for each node of the window; 0 on the critical path. Ignores what comes after the window.
std::vector<uint64_t> slack(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
