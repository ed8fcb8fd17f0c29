// How many GPU operations run at once: the parallelism profile (Kumar 1988).
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/steps.h"

namespace tandem::dag::analysis {

struct Width {
  struct Change {
    uint64_t ns;
    uint32_t running;  // from then on
  };
  std::vector<Change> changes;  // neighbours differ in `running`
  uint32_t most = 0;
  double mean = 0;       // from the first start to the last end of a GPU operation
  uint64_t busy_ns = 0;  // time in which at least one runs
};

inline Width width(const std::vector<Step>& steps) {
  Width out;
  double work_ns = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const uint32_t running = steps[i].running();
    out.most = std::max(out.most, running);
    if (out.changes.empty() || out.changes.back().running != running)
      out.changes.push_back({steps[i].ns, running});
    if (i + 1 == steps.size() || running == 0) continue;
    const uint64_t length_ns = steps[i + 1].ns - steps[i].ns;
    out.busy_ns += length_ns;
    work_ns += static_cast<double>(length_ns) * running;
  }
  if (!steps.empty()) out.mean = work_ns / static_cast<double>(steps.back().ns - steps[0].ns);
  return out;
}

}  // namespace tandem::dag::analysis
