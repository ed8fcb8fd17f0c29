// Who of the kernels that may run at a time has how many SMs: in the order in which they became
// ready each takes what it demands, or what is left.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/waves.h"
#include "dag/analysis/window.h"

namespace tandem::dag::analysis {

// Kernels that may run at a time, at most. More work queues a GPU does not have
// (CUDA_DEVICE_MAX_CONNECTIONS, CUDA C++ Programming Guide): what runs beside what is then not what
// streams say. And whoever begins or ends changes the rate of all.
constexpr size_t kMostAtOnce = 32;

inline Grid grid_of(const Operation& op) { return {op.blocks, op.block_threads}; }

// A kernel that runs, or would if there were an SM for it.
struct Running {
  size_t task;     // whatever the caller calls it
  Grid grid;
  double left_ns;  // of its work, as on the number of SMs that durations are of
  double rate;     // of that work, a ns; 0 = it has no SM
};

// Sets the rates of `kernels`, of which those in front became ready first, on `sms` SMs.
inline void share_sms(std::vector<Running>* kernels, const SmLimits& limits, uint32_t recorded_sms,
                      uint32_t sms, double gamma) {
  uint32_t left = sms;
  for (Running& kernel : *kernels) {
    const uint32_t taken = std::min(left, sm_demand(kernel.grid, limits, sms));
    left -= taken;
    kernel.rate = taken == 0 ? 0 : 1 / stretch(kernel.grid, limits, recorded_sms, taken, gamma);
  }
}

}  // namespace tandem::dag::analysis
