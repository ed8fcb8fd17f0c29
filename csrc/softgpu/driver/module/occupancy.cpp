// Occupancy: how many blocks and clusters of a kernel the device holds at once.
#include <algorithm>

#include "api.h"
#include "function_attributes.h"
#include "launch_plan.h"
#include "module.h"

namespace softgpu {
namespace {

constexpr unsigned kKnownFlags = CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;

// A call about a function or a kernel in the current context.
struct OccupancyCall {
  explicit OccupancyCall(const void* handle) {
    error = call.error;
    if (error) return;
    error = resolve_function(call.rt, call.context, handle, &function);
    if (!error) limits = limits_of(call.rt, call.context->device);
  }
  Call call{Call::kContext};
  Function* function = nullptr;
  DeviceLimits limits{};
  CUresult error;

  uint32_t max_threads() const {
    return std::min(function->traits.max_threads, DeviceLimits::kThreadsPerBlock);
  }
  uint32_t blocks(uint32_t threads, uint64_t dynamic_bytes) const {
    if (threads > max_threads()) return 0;
    return blocks_per_sm(limits, {threads, function->traits.registers,
                                  function->traits.shared_bytes + dynamic_bytes});
  }
};

}  // namespace

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                                 int block_threads,
                                                                 size_t shared_bytes,
                                                                 unsigned int flags) {
  const OccupancyCall on(handle);
  if (on.error) return on.error;
  if (!blocks || block_threads <= 0 || (flags & ~kKnownFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *blocks = static_cast<int>(on.blocks(static_cast<uint32_t>(block_threads), shared_bytes));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle,
                                                        int block_threads, size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block_threads,
                                                              shared_bytes, 0);
}

SOFTGPU_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                      CUoccupancyB2DSize shared_for,
                                                      size_t shared_bytes, int limit,
                                                      unsigned int flags) {
  OccupancyCall on(handle);
  if (on.error) return on.error;
  if (!grid || !block || limit < 0 || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t most = limit > 0
                            ? std::min<uint32_t>(static_cast<uint32_t>(limit), on.max_threads())
                            : on.max_threads();
  // Among the block sizes with the most resident threads choose the largest, hence the fewest
  // blocks.
  uint32_t best_threads = 0, best_size = 0;
  constexpr uint32_t kWarp = DeviceLimits::kWarp;
  for (uint32_t size = (most + kWarp - 1) / kWarp * kWarp; size > 0; size -= kWarp) {
    const uint32_t threads = std::min(size, most);
    size_t dynamic_bytes = shared_bytes;
    if (shared_for) {
      on.call.lock.unlock();  // the program's function may call the driver
      dynamic_bytes = shared_for(static_cast<int>(threads));
      on.call.lock.lock();
      if (!checked<Function>(on.call.rt.functions, on.function)) return CUDA_ERROR_INVALID_HANDLE;
    }
    const uint32_t resident = on.blocks(threads, dynamic_bytes) * threads;
    if (resident > best_threads) {
      best_threads = resident;
      best_size = threads;
    }
  }
  *block = static_cast<int>(best_size);
  *grid = best_size ? static_cast<int>(best_threads / best_size * on.limits.sm_count) : 0;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle,
                                             CUoccupancyB2DSize shared, size_t bytes, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared, bytes, limit, 0);
}

SOFTGPU_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                    int block_threads) {
  const OccupancyCall on(handle);
  if (on.error) return on.error;
  if (!bytes || blocks <= 0 || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const auto wanted = static_cast<uint32_t>(blocks);
  if (on.blocks(static_cast<uint32_t>(block_threads), 0) < wanted) return CUDA_ERROR_INVALID_VALUE;
  *bytes = shared_left_for(on.limits, wanted, on.function->traits.shared_bytes);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle,
                                               const CUlaunchConfig* config) {
  if (!size || !config) return CUDA_ERROR_INVALID_VALUE;
  const OccupancyCall on(handle);
  if (on.error) return on.error;
  LaunchPlan plan;
  if (const CUresult bad =
          plan_launch(on.call.rt, *on.function, *config, LaunchUse::kClusterSize, &plan)) {
    return bad;
  }
  if (on.limits.max_cluster == 0) return CUDA_ERROR_NOT_SUPPORTED;
  uint32_t most = plan.non_portable ? on.limits.max_cluster_non_portable : on.limits.max_cluster;
  if (plan.required_cluster) most = static_cast<uint32_t>(plan.cluster_blocks());
  *size = static_cast<int>(std::min(most, on.limits.sm_count * plan.blocks_per_sm));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                         const CUlaunchConfig* config) {
  if (!clusters || !config) return CUDA_ERROR_INVALID_VALUE;
  const OccupancyCall on(handle);
  if (on.error) return on.error;
  LaunchPlan plan;
  if (const CUresult bad =
          plan_launch(on.call.rt, *on.function, *config, LaunchUse::kClusterCount, &plan)) {
    return bad;
  }
  if (plan.cluster[0] == 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  *clusters = static_cast<int>(on.limits.sm_count * plan.blocks_per_sm / plan.cluster_blocks());
  return CUDA_SUCCESS;
}
