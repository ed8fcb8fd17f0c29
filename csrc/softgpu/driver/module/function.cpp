// CUfunction: a kernel in one context.
#include "api.h"
#include "function_attributes.h"
#include "module.h"

using namespace softgpu;

namespace {

// A call about a function; INVALID_HANDLE for an unknown or null handle.
struct FunctionCall {
  explicit FunctionCall(const void* handle) {
    error = call.error;
    if (error) return;
    function = checked<Function>(call.rt.functions, handle);
    if (!function) error = CUDA_ERROR_INVALID_HANDLE;
  }
  Call call{Call::kNothing};
  Function* function = nullptr;
  CUresult error;
};

bool needs_loading(int attribute) {
  return attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ||
         attribute == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES ||
         attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
}

}  // namespace

SOFTGPU_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const FunctionCall on(handle);
  if (on.error) return on.error;
  if (!on.function->loaded && needs_loading(attribute)) return CUDA_ERROR_FUNCTION_NOT_LOADED;
  return effective_attribute(on.call.rt, *on.function, attribute, value);
}

SOFTGPU_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  const FunctionCall on(handle);
  if (on.error) return on.error;
  const Context* context = on.function->module->context;
  const DeviceLimits limits = limits_of(on.call.rt, context ? context->device : 0);
  if (const CUresult bad = check_attribute(*on.function, limits, attribute, value)) return bad;
  on.function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuFuncGetName(const char** name, CUfunction handle) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const FunctionCall on(handle);
  if (on.error) return on.error;
  *name = on.function->name.c_str();
  return CUDA_SUCCESS;
}

SOFTGPU_API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  const FunctionCall on(handle);
  if (on.error) return on.error;
  const tandem::KernelEntry& entry = *on.function->entry;
  if (index >= entry.param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = entry.param_offset[index];
  if (bytes) *bytes = entry.param_size[index];
  return CUDA_SUCCESS;
}

SOFTGPU_API cuFuncGetModule(CUmodule* out, CUfunction handle) {
  const FunctionCall on(handle);
  if (on.error) return on.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmodule>(on.function->module);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  const FunctionCall on(handle);
  if (on.error) return on.error;
  *state =
      on.function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuFuncLoad(CUfunction handle) {
  const FunctionCall on(handle);
  if (on.error) return on.error;
  on.function->loaded = true;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  const FunctionCall on(handle);
  if (on.error) return on.error;
  const bool known = config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  const FunctionCall on(handle);
  if (on.error) return on.error;
  const bool known = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                     config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#if CUDA_VERSION >= 13050
SOFTGPU_API cuFuncGetParamCount(CUfunction handle, size_t* count) {
  const FunctionCall on(handle);
  if (on.error) return on.error;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = on.function->entry->param_count;
  return CUDA_SUCCESS;
}
#endif
