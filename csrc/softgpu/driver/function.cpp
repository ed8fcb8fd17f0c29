// What a function or kernel says of itself, and how many of its blocks fit on an SM.
#include <algorithm>

#include "api.h"

using namespace softgpu;

namespace {

CUresult attribute_of(const Function& function, int attribute, int* value) {
  const auto own = function.attributes.find(attribute);
  if (own != function.attributes.end()) {
    *value = own->second;
    return CUDA_SUCCESS;
  }
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = 49152; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
    default:
      if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;
  }
  return CUDA_SUCCESS;
}

bool settable(int attribute) {
  return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
         attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
         (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
          attribute < CU_FUNC_ATTRIBUTE_MAX);
}

CUresult get_attribute(int* value, int attribute, const void* handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* function = checked<Function>(call.rt.functions, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(*function, attribute, value);
}

CUresult set_attribute(const void* handle, int attribute, int value) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* function = checked<Function>(call.rt.functions, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!settable(attribute)) return CUDA_ERROR_INVALID_VALUE;
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

CUresult get_name(const char** name, const void* handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* function = checked<Function>(call.rt.functions, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult get_parameter(const void* handle, size_t index, size_t* offset, size_t* bytes) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* function = checked<Function>(call.rt.functions, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!offset || index >= function->entry->param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->entry->param_offset[index];
  if (bytes) *bytes = function->entry->param_size[index];
  return CUDA_SUCCESS;
}

}  // namespace

SOFTGPU_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return get_attribute(value, attribute, handle);
}
SOFTGPU_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return set_attribute(handle, attribute, value);
}
SOFTGPU_API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                                 CUdevice) {
  return get_attribute(value, attribute, handle);
}
SOFTGPU_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                                 CUdevice) {
  return set_attribute(handle, attribute, value);
}
SOFTGPU_API cuFuncGetName(const char** name, CUfunction handle) { return get_name(name, handle); }
SOFTGPU_API cuKernelGetName(const char** name, CUkernel handle) { return get_name(name, handle); }
SOFTGPU_API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return get_parameter(handle, index, offset, bytes);
}
SOFTGPU_API cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
  return get_parameter(handle, index, offset, bytes);
}

SOFTGPU_API cuFuncGetModule(CUmodule* out, CUfunction handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* function = checked<Function>(call.rt.functions, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmodule>(function->module);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!checked<Function>(call.rt.functions, handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUfunction>(handle);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  return cuFuncGetModule(reinterpret_cast<CUmodule*>(out), reinterpret_cast<CUfunction>(handle));
}

SOFTGPU_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction) {
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}
SOFTGPU_API cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }

SOFTGPU_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  return checked<Function>(call.rt.functions, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                                 int block_threads, size_t,
                                                                 unsigned int) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!checked<Function>(call.rt.functions, handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (!blocks || block_threads <= 0 || block_threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  const auto& info = call.rt.device.device[call.context->device];
  const uint32_t by_threads = info.max_threads_per_sm / static_cast<uint32_t>(block_threads);
  *blocks = static_cast<int>(std::min(by_threads, info.max_blocks_per_sm));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle,
                                                        int block_threads, size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block_threads,
                                                              shared_bytes, 0);
}

SOFTGPU_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                      CUoccupancyB2DSize, size_t, int limit,
                                                      unsigned int) {
  if (!grid || !block) return CUDA_ERROR_INVALID_VALUE;
  const int threads = limit > 0 ? std::min(limit, 1024) : 1024;
  int per_sm = 0;
  const CUresult result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, handle, threads, 0);
  if (result) return result;
  Call call(Call::kContext);
  if (call.error) return call.error;
  *block = threads;
  *grid = per_sm * static_cast<int>(call.rt.device.device[call.context->device].sm_count);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle,
                                             CUoccupancyB2DSize shared, size_t bytes, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared, bytes, limit, 0);
}
