#include "function_attributes.h"

#include <algorithm>

#include "loader.h"

namespace softgpu {
namespace {

int as_int(uint32_t value) { return static_cast<int>(value); }

bool is_required_cluster(int attribute) {
  return attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH ||
         attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT ||
         attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH;
}

int device_of(const Function& function) {
  return function.module->context ? function.module->context->device : 0;
}

}  // namespace

DeviceLimits limits_of(const Runtime& rt, int device) {
  return device_limits(rt.device.device[device]);
}

CUresult default_attribute(const Function& function, const DeviceLimits& limits, uint32_t arch,
                           int attribute, int* value) {
  const KernelTraits& traits = function.traits;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = as_int(traits.max_threads); break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = as_int(traits.shared_bytes); break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = as_int(traits.constant_bytes); break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = as_int(traits.local_bytes); break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = as_int(traits.registers); break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = as_int(traits.ptx_version ? traits.ptx_version : arch);
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = as_int(traits.binary_version ? traits.binary_version : arch);
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value =
          as_int(limits.shared_per_block - std::min(limits.shared_per_block, traits.shared_bytes));
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value =
          as_int(traits.required_cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]);
      break;
    default:
      if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult check_attribute(const Function& function, const DeviceLimits& limits, int attribute,
                         int value) {
  if (is_required_cluster(attribute)) {
    if (function.traits.required_cluster[0] != 0) return CUDA_ERROR_NOT_PERMITTED;
    return value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  bool good = false;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      good = value >= 0 && static_cast<uint64_t>(value) + function.traits.shared_bytes <=
                               limits.shared_per_block_optin;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      good = value >= -1 && value <= 100;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      good = value == 0 || value == 1;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      good = value >= CU_CLUSTER_SCHEDULING_POLICY_DEFAULT &&
             value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
      break;
#if CUDA_VERSION >= 13050
    case CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE: good = value >= 0; break;
#endif
    default: break;
  }
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult effective_attribute(const Runtime& rt, const Function& function, int attribute,
                             int* value) {
  const int device = device_of(function);
  const auto own = function.attributes.find(attribute);
  if (own != function.attributes.end()) {
    *value = own->second;
    return CUDA_SUCCESS;
  }
  if (function.kernel) {
    const auto of_device = function.kernel->attributes.find(device);
    if (of_device != function.kernel->attributes.end()) {
      const auto set = of_device->second.find(attribute);
      if (set != of_device->second.end()) {
        *value = set->second;
        return CUDA_SUCCESS;
      }
    }
  }
  return default_attribute(function, limits_of(rt, device), arch_of_device(rt, device), attribute,
                           value);
}

}  // namespace softgpu
