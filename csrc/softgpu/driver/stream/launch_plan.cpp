#include "launch_plan.h"

#include <algorithm>

#include "context.h"
#include "function_attributes.h"

namespace softgpu {
namespace {

bool in(int value, int first, int last) { return value >= first && value <= last; }

CUresult valid(bool good) { return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult check_window(const CUaccessPolicyWindow& window) {
  const bool hit = in(window.hitProp, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_PERSISTING);
  const bool miss = in(window.missProp, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_STREAMING);
  return valid(hit && miss && window.hitRatio >= 0.0F && window.hitRatio <= 1.0F &&
               window.num_bytes <= DeviceLimits::kMaxAccessWindowBytes);
}

// Finds an event that a launch may record: without timing, not interprocess.
CUresult find_event(const Runtime& rt, const Context* context, CUevent handle, int flags,
                    Event** found) {
  auto* event = checked<Event>(rt.events, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const bool good = (event->flags & CU_EVENT_DISABLE_TIMING) != 0 &&
                    (event->flags & CU_EVENT_INTERPROCESS) == 0 && flags == CU_EVENT_RECORD_DEFAULT;
  if (!good || event->context != context) return CUDA_ERROR_INVALID_VALUE;
  *found = event;
  return CUDA_SUCCESS;
}

struct Planner {
  const Runtime& rt;
  const Function& function;
  LaunchUse use;
  LaunchPlan* plan;
  DeviceLimits limits;
  uint32_t preferred_cluster[3] = {};
  bool shared_portable = false, shared_opted_in = false;

  int attribute(int id) const {
    int value = 0;
    effective_attribute(rt, function, id, &value);
    return value;
  }

  CUresult take(const CUlaunchAttribute& given) {
    const CUlaunchAttributeValue& value = given.value;
    if (const CUresult bad = check_launch_attribute(limits, given.id, value)) return bad;
    const Context* context = function.module->context;
    switch (given.id) {
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: return CUDA_ERROR_INVALID_VALUE;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: plan->cooperative = value.cooperative != 0; break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY: plan->priority = value.priority; break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const uint32_t wanted[] = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
        if (use == LaunchUse::kClusterSize) break;
        if (wanted[0] == 0 || wanted[1] == 0 || wanted[2] == 0) return CUDA_ERROR_INVALID_VALUE;
        std::copy(wanted, wanted + 3, plan->cluster);
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        preferred_cluster[0] = value.preferredClusterDim.x;
        preferred_cluster[1] = value.preferredClusterDim.y;
        preferred_cluster[2] = value.preferredClusterDim.z;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return find_event(rt, context, value.programmaticEvent.event, value.programmaticEvent.flags,
                          &plan->programmatic_event);
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return find_event(rt, context, value.launchCompletionEvent.event,
                          value.launchCompletionEvent.flags, &plan->completion_event);
      // For graphs only; no kernel here can update nodes.
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: return CUDA_ERROR_NOT_SUPPORTED;
#if CUDA_VERSION >= 13050
      case CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE:
        if (value.portableClusterSizeMode != CU_LAUNCH_PORTABLE_CLUSTER_MODE_DEFAULT) {
          plan->non_portable =
              value.portableClusterSizeMode == CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE;
        }
        break;
      case CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE:
        shared_portable = value.sharedMemoryMode == CU_SHARED_MEMORY_MODE_REQUIRE_PORTABLE;
        shared_opted_in = value.sharedMemoryMode > CU_SHARED_MEMORY_MODE_REQUIRE_PORTABLE;
        break;
#endif
      default: break;  // hints that have no effect here
    }
    return CUDA_SUCCESS;
  }

  CUresult check_shape() const {
    uint64_t threads = 1;
    for (int i = 0; i < 3; ++i) {
      if (plan->grid[i] == 0 || plan->block[i] == 0 || plan->grid[i] > DeviceLimits::kMaxGrid[i] ||
          plan->block[i] > DeviceLimits::kMaxBlock[i]) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      threads *= plan->block[i];
    }
    const KernelTraits& traits = function.traits;
    if (threads > DeviceLimits::kThreadsPerBlock || threads > traits.max_threads) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (threads * traits.registers > DeviceLimits::kRegistersPerBlock) {
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    const bool other_block = traits.required_block[0] != 0 &&
                             !std::equal(plan->block, plan->block + 3, traits.required_block);
    return valid(!other_block);
  }

  CUresult check_shared() const {
    uint64_t most =
        static_cast<uint64_t>(attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
    const uint64_t fixed = function.traits.shared_bytes;
    if (shared_opted_in) most = limits.shared_per_block_optin - fixed;
    if (shared_portable) most = std::min<uint64_t>(most, limits.shared_per_block - fixed);
    return valid(plan->shared_bytes <= most);
  }

  CUresult check_cluster() {
    const uint32_t required[] = {
        static_cast<uint32_t>(attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)),
        static_cast<uint32_t>(attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT)),
        static_cast<uint32_t>(attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH))};
    const int positive =
        static_cast<int>(std::count_if(required, required + 3, [](uint32_t n) { return n > 0; }));
    if (positive != 0 && positive != 3) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (positive == 3) {
      if (plan->cluster[0] != 0 && !std::equal(required, required + 3, plan->cluster)) {
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      }
      std::copy(required, required + 3, plan->cluster);
      plan->required_cluster = true;
    }
    if (plan->cluster[0] == 0) return CUDA_SUCCESS;
    const uint64_t blocks = plan->cluster_blocks();
    if (limits.max_cluster == 0) return blocks > 1 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    const uint32_t most = plan->non_portable ? limits.max_cluster_non_portable : limits.max_cluster;
    if (blocks > most) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    for (int i = 0; i < 3; ++i) {
      if (plan->grid[i] % plan->cluster[i] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    return check_preferred_cluster();
  }

  CUresult check_preferred_cluster() const {
    if (preferred_cluster[0] == 0) return CUDA_SUCCESS;
    for (int i = 0; i < 3; ++i) {
      const uint32_t wanted = preferred_cluster[i];
      if (wanted == 0 || wanted % plan->cluster[i] != 0 || plan->grid[i] % wanted != 0) {
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      }
    }
    return valid(preferred_cluster[2] == plan->cluster[2]);
  }

  // All blocks of a cooperative grid meet at its barrier, so they must fit side by side.
  CUresult check_residency() const {
    if (plan->blocks_per_sm == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    const Context* context = function.module->context;
    const uint32_t percent = context ? context->sm_percent : 100;
    const uint64_t resident =
        uint64_t{plan->blocks_per_sm} * sms_of_percent(limits.sm_count, percent);
    return plan->cooperative && plan->grid_blocks() > resident
               ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
               : CUDA_SUCCESS;
  }
};

}  // namespace

CUresult check_launch_attribute(const DeviceLimits& limits, CUlaunchAttributeID id,
                                const CUlaunchAttributeValue& value) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: return check_window(value.accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      return valid(in(value.syncPolicy, CU_SYNC_POLICY_AUTO, CU_SYNC_POLICY_BLOCKING_SYNC));
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return valid(in(value.clusterSchedulingPolicyPreference, CU_CLUSTER_SCHEDULING_POLICY_DEFAULT,
                      CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING));
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return valid(value.memSyncDomainMap.default_ < limits.mem_sync_domains &&
                   value.memSyncDomainMap.remote < limits.mem_sync_domains);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return valid(in(value.memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
                      CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE));
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return valid(value.sharedMemCarveout <= 100);
#if CUDA_VERSION >= 13050
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return valid(value.nvlinkUtilCentricScheduling <= 1);
    case CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE:
      return valid(in(value.portableClusterSizeMode, CU_LAUNCH_PORTABLE_CLUSTER_MODE_DEFAULT,
                      CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE));
    case CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE:
      return valid(in(value.sharedMemoryMode, CU_SHARED_MEMORY_MODE_DEFAULT,
                      CU_SHARED_MEMORY_MODE_PREFER_OVERSIZED_SHARED_MEMORY));
#endif
    default: return valid(in(id, CU_LAUNCH_ATTRIBUTE_IGNORE, CU_LAUNCH_ATTRIBUTE_MAX - 1));
  }
}

CUresult plan_launch(const Runtime& rt, const Function& function, const CUlaunchConfig& config,
                     LaunchUse use, LaunchPlan* plan) {
  if (config.numAttrs > 0 && !config.attrs) return CUDA_ERROR_INVALID_VALUE;
  *plan = LaunchPlan{{config.gridDimX, config.gridDimY, config.gridDimZ},
                     {config.blockDimX, config.blockDimY, config.blockDimZ},
                     config.sharedMemBytes};
  const Context* context = function.module->context;
  Planner planner{rt, function, use, plan, limits_of(rt, context ? context->device : 0)};
  plan->non_portable = planner.attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0;
  for (unsigned int i = 0; i < config.numAttrs; ++i) {
    if (const CUresult bad = planner.take(config.attrs[i])) return bad;
  }
  if (const CUresult bad = planner.check_shape()) return bad;
  if (const CUresult bad = planner.check_shared()) return bad;
  if (const CUresult bad = planner.check_cluster()) return bad;
  const uint32_t threads = plan->block[0] * plan->block[1] * plan->block[2];
  plan->blocks_per_sm =
      blocks_per_sm(planner.limits, {threads, function.traits.registers,
                                     uint64_t{function.traits.shared_bytes} + plan->shared_bytes});
  return planner.check_residency();
}

}  // namespace softgpu
