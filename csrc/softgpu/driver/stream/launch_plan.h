// A launch request, checked: shape, shared memory, clusters and the launch attributes.
#pragma once

#include <optional>

#include "device_limits.h"
#include "runtime.h"

namespace softgpu {

struct LaunchPlan {
  uint32_t grid[3], block[3], shared_bytes;
  bool cooperative = false;
  bool non_portable = false;      // clusters above the portable size are allowed
  bool required_cluster = false;  // by the function, not by this launch
  uint32_t cluster[3] = {};       // 0: none
  uint32_t blocks_per_sm = 0;     // as many as fit
  std::optional<int> priority{};
  Event* programmatic_event = nullptr;
  Event* completion_event = nullptr;

  uint64_t cluster_blocks() const { return uint64_t{cluster[0]} * cluster[1] * cluster[2]; }
  uint64_t grid_blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
  // How many SMs must hold blocks of this launch at the same time.
  uint32_t least_sms() const {
    const uint64_t together = cooperative ? grid_blocks() : cluster_blocks();
    return static_cast<uint32_t>((together + blocks_per_sm - 1) / blocks_per_sm);
  }
};

enum class LaunchUse { kLaunch, kClusterCount, kClusterSize };

// Checks a launch of `function` in the context it belongs to. The occupancy calls ask as launches
// do, except that kClusterSize ignores the cluster dimensions.
CUresult plan_launch(const Runtime& rt, const Function& function, const CUlaunchConfig& config,
                     LaunchUse use, LaunchPlan* plan);

// Checks ids and values of attributes, independent of a function; also for streams.
CUresult check_launch_attribute(const DeviceLimits& limits, CUlaunchAttributeID id,
                                const CUlaunchAttributeValue& value);

}  // namespace softgpu
