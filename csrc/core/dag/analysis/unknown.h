// What an analysis of the window could not know.
#pragma once

#include <cstdint>

#include "dag/analysis/window.h"

namespace tandem::dag::analysis {

struct Unknown {
  uint64_t durations = 0;  // GPU operations assumed to last 0 ns
  uint64_t estimated = 0;  // those whose duration is predicted
  uint64_t accesses = 0;   // those that may touch more memory than is known
  uint64_t order = 0;      // operations that may have had to wait for more than is known
};

inline Unknown unknown(const Window& window) {
  Unknown out;
  for (NodeId id = window.first; id < window.last; ++id) {
    const Operation& op = window.op(id);
    out.order += (op.flags & kUnknownOrder) != 0;
    if (!runs_on_gpu(op.kind)) continue;
    out.durations += op.duration_ns == 0;
    out.estimated += (op.flags & kEstimated) != 0;
    out.accesses += (op.flags & kUnresolved) != 0;
  }
  return out;
}

}  // namespace tandem::dag::analysis
