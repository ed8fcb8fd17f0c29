// CUkernel: a kernel of a library, independent of a device.
#include "api.h"
#include "function_attributes.h"
#include "module.h"

using namespace softgpu;

namespace {

// A call about a kernel; INVALID_HANDLE for an unknown or null handle.
struct KernelCall {
  explicit KernelCall(const void* handle, Call::Need need = Call::kNothing) : call(need) {
    error = call.error;
    if (error) return;
    kernel = checked<Kernel>(call.rt.kernels, handle);
    if (!kernel) error = CUDA_ERROR_INVALID_HANDLE;
  }
  bool is_device(CUdevice device) const {
    return device >= 0 && static_cast<uint32_t>(device) < call.rt.device.device_count;
  }
  Call call;
  Kernel* kernel = nullptr;
  CUresult error;
};

}  // namespace

SOFTGPU_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const KernelCall on(handle, Call::kContext);
  if (on.error) return on.error;
  Function* found = nullptr;
  if (const CUresult bad = resolve_function(on.call.rt, on.call.context, handle, &found)) {
    return bad;
  }
  found->loaded = true;
  *out = reinterpret_cast<CUfunction>(found);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const KernelCall on(handle);
  if (on.error) return on.error;
  *out = reinterpret_cast<CUlibrary>(on.kernel->library);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuKernelGetName(const char** name, CUkernel handle) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const KernelCall on(handle);
  if (on.error) return on.error;
  *name = on.kernel->function->name.c_str();
  return CUDA_SUCCESS;
}

SOFTGPU_API cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  const KernelCall on(handle);
  if (on.error) return on.error;
  const tandem::KernelEntry& entry = *on.kernel->function->entry;
  if (index >= entry.param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = entry.param_offset[index];
  if (bytes) *bytes = entry.param_size[index];
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13050
SOFTGPU_API cuKernelGetParamCount(CUkernel handle, size_t* count) {
  const KernelCall on(handle);
  if (on.error) return on.error;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = on.kernel->function->entry->param_count;
  return CUDA_SUCCESS;
}
#endif

SOFTGPU_API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                                 CUdevice device) {
  const KernelCall on(handle);
  if (on.error) return on.error;
  if (!on.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const AttributeMap& own = on.kernel->attributes[device];
  const auto set = own.find(attribute);
  if (set != own.end()) {
    *value = set->second;
    return CUDA_SUCCESS;
  }
  return default_attribute(*on.kernel->function, limits_of(on.call.rt, device),
                           arch_of_device(on.call.rt, device), attribute, value);
}

SOFTGPU_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                                 CUdevice device) {
  const KernelCall on(handle);
  if (on.error) return on.error;
  if (!on.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const DeviceLimits limits = limits_of(on.call.rt, device);
  if (const CUresult bad = check_attribute(*on.kernel->function, limits, attribute, value)) {
    return bad;
  }
  on.kernel->attributes[device][attribute] = value;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
  const KernelCall on(handle);
  if (on.error) return on.error;
  if (!on.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const bool known = config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
