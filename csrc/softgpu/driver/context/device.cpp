// cuInit, and what a device reports about itself.
#include <cstdio>
#include <cstring>

#include "api.h"
#include "cuda_version.h"
#include "device_attributes.h"

namespace {

using softgpu::Call;

// A device's public figures do not change, so they can be read without the mutex after cuInit.
const softgpu::proto::DeviceInfo* info_of(const Call& call, CUdevice device) {
  if (device < 0 || static_cast<uint32_t>(device) >= call.rt.device.device_count) return nullptr;
  return &call.rt.device.device[device];
}

}  // namespace

SOFTGPU_API cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return softgpu::runtime().start(0);
}

SOFTGPU_API cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = softgpu::cuda_version();
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
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const bool mps = call.rt.device.mode == static_cast<uint32_t>(softgpu::proto::Mode::kMps);
  return softgpu::device_attribute({*info, static_cast<int>(info->index), mps}, attribute, value)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
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
  const auto* info = info_of(call, device);
  if (!info) return CUDA_ERROR_INVALID_DEVICE;
  if (!id || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(id, static_cast<size_t>(length), "0000:01:%02x.0", info->index);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!device || !id) return CUDA_ERROR_INVALID_VALUE;
  // domain:bus:device.function in hexadecimal; domain and function are optional.
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  int used = 0;
  const auto whole = [&] { return id[used] == '\0'; };
  bool parsed = sscanf(id, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &used) == 4 && whole();
  if (!parsed) parsed = sscanf(id, "%x:%x:%x%n", &domain, &bus, &slot, &used) == 3 && whole();
  if (!parsed) {
    domain = 0;
    parsed = sscanf(id, "%x:%x.%x%n", &bus, &slot, &function, &used) == 3 && whole();
  }
  if (!parsed) return CUDA_ERROR_INVALID_VALUE;
  const bool here = domain == 0 && bus == 1 && function == 0;
  for (CUdevice i = 0; here && info_of(call, i); ++i) {
    if (info_of(call, i)->index != slot) continue;
    *device = i;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SOFTGPU_API cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type,
                                           CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!info_of(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!supported || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *supported = call.rt.device.mode == static_cast<uint32_t>(softgpu::proto::Mode::kMps);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetTexture1DLinearMaxWidth(size_t* elements, CUarray_format format,
                                               unsigned channels, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!info_of(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  const bool plain = format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8 ||
                     format == CU_AD_FORMAT_UNSIGNED_INT16 || format == CU_AD_FORMAT_SIGNED_INT16 ||
                     format == CU_AD_FORMAT_UNSIGNED_INT32 || format == CU_AD_FORMAT_SIGNED_INT32 ||
                     format == CU_AD_FORMAT_HALF || format == CU_AD_FORMAT_FLOAT;
  if (!elements || !plain || (channels != 1 && channels != 2 && channels != 4)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *elements = size_t{1} << 28;
  return CUDA_SUCCESS;
}
