// cuInit and what a device says of itself.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "api.h"

namespace {

using softgpu::Call;

// The public figures of a device do not change: read without the mutex once cuInit has returned.
const softgpu::proto::DeviceInfo* info_of(const Call& call, CUdevice device) {
  if (device < 0 || static_cast<uint32_t>(device) >= call.rt.device.device_count) return nullptr;
  return &call.rt.device.device[device];
}

// Attributes that are the same on every profile; what is not listed here or below reads 0.
const std::unordered_map<int, int>& constants() {
  static const auto* table = new std::unordered_map<int, int>{
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 102400},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
      {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
  };
  return *table;
}

}  // namespace

SOFTGPU_API cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return softgpu::runtime().start(0);
}

SOFTGPU_API cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetCount(int* count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(call.rt.device.device_count);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGet(CUdevice* device, int ordinal) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!info_of(call, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetName(char* name, int length, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* info = info_of(call, device);
  if (!info) return CUDA_ERROR_INVALID_DEVICE;
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, static_cast<size_t>(length), "%s", info->name);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* info = info_of(call, device);
  if (!info) return CUDA_ERROR_INVALID_DEVICE;
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, info->uuid, sizeof info->uuid);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

SOFTGPU_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* info = info_of(call, device);
  if (!info) return CUDA_ERROR_INVALID_DEVICE;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = info->memory_bytes;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* info = info_of(call, device);
  if (!info) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = static_cast<int>(info->sm_count); break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = static_cast<int>(info->clock_mhz * 1000); break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = static_cast<int>(info->compute_major);
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = static_cast<int>(info->compute_minor);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = static_cast<int>(info->max_threads_per_sm);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *value = static_cast<int>(info->max_blocks_per_sm);
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = static_cast<int>(info->l2_bytes); break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = device; break;
    default: {
      const auto found = constants().find(attribute);
      *value = found == constants().end() ? 0 : found->second;
    }
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* info = info_of(call, device);
  if (!info) return CUDA_ERROR_INVALID_DEVICE;
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  *major = static_cast<int>(info->compute_major);
  *minor = static_cast<int>(info->compute_minor);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!info_of(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!id || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(id, static_cast<size_t>(length), "0000:01:%02x.0", static_cast<unsigned>(device));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!info_of(call, device) || !info_of(call, peer)) return CUDA_ERROR_INVALID_DEVICE;
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  *can = 0;
  return CUDA_SUCCESS;
}
