// How much later an operation could begin without making the window longer: its latest start less
// its start (backward pass of the critical path method, Kelley and Walker 1959; "total float").
//
// A delay moves what an order edge leads to, and, when a thread waits for it, all that the thread
// submits afterwards: the host is taken to need the same time between its waits and its calls.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

// In ns, of each node of the window; 0 on the critical path. What comes after the window does not
// count.
std::vector<uint64_t> slack(const Window& window, const Schedule& schedule);

}  // namespace tandem::dag::analysis
