// How many SMs each of the kernels that may run at once gets: in the order in which they became
// ready, each takes what it demands, or what is left.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/waves.h"
#include "dag/analysis/window.h"

namespace tandem::dag::analysis {

// Most kernels that may run at once. A GPU has no more work queues (CUDA_DEVICE_MAX_CONNECTIONS,
// CUDA C++ Programming Guide), so beyond that streams do not tell what runs beside what. Besides,
// every beginning or end changes the rates of all.
constexpr size_t kMostAtOnce = 32;

inline Grid grid_of(const Operation& op) { return {op.blocks, op.block_threads}; }

// A kernel that runs, or would run if there were an SM for it.
struct Running {
  size_t task;  // the caller's number for it
  Grid grid;
  double left_ns;  // remaining work, in ns on the recorded number of SMs
  double rate;     // of that work, per ns; 0 = it has no SM
};

// Sets the rates of `kernels`, which are in the order in which they became ready, on `sms` SMs.
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
