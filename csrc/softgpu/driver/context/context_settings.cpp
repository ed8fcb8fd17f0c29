// Settings of a context: flags, limits, preferences, execution affinity.
#include <algorithm>

#include "api.h"
#include "context.h"
#include "function_attributes.h"
#include "loader.h"

namespace softgpu {
namespace {

enum class Access { kReadWrite, kReadOnly, kNone };

struct Limit {
  Access access = Access::kNone;
  size_t standard = 0;  // until it is set
  size_t largest = 0;   // larger values are clamped to it
  size_t multiple = 1;  // rounded up to it
};

constexpr size_t kMaxStackBytes = 512 << 10;  // local memory of one thread

Limit limit_of(const Runtime& rt, const Context* context, CUlimit limit) {
  constexpr size_t kAny = SIZE_MAX / 2;
  const DeviceLimits device = limits_of(rt, context->device);
  switch (limit) {
    case CU_LIMIT_STACK_SIZE: return {Access::kReadWrite, 1024, kMaxStackBytes, 16};
    case CU_LIMIT_PRINTF_FIFO_SIZE: return {Access::kReadWrite, 1 << 20, kAny};
    case CU_LIMIT_MALLOC_HEAP_SIZE: return {Access::kReadWrite, 8 << 20, kAny};
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      if (arch_of_device(rt, context->device) >= 90) return {};
      return {Access::kReadWrite, 2, 24};
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: return {Access::kReadWrite, 2048, kAny};
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: return {Access::kReadWrite, 64, 128};
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      return {Access::kReadWrite, 0, device.max_persisting_l2};
    case CU_LIMIT_CIG_ENABLED: return {Access::kReadOnly};
    case CU_LIMIT_SHMEM_SIZE: return {Access::kReadOnly, device.shared_per_block_optin};
    default: return {};
  }
}

bool known_cache_config(CUfunc_cache config) {
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (least) *least = 0;
  if (greatest) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetFlags(unsigned int* flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = call.context->flags;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxSetFlags(unsigned int flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!known_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  call.context->flags = flags;
  if (call.context->primary) {
    call.rt.primary_flags[static_cast<size_t>(call.context->device)] = flags;
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Context* context = handle ? checked<Context>(call.rt.contexts, handle) : current();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetLimit(size_t* value, CUlimit limit) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const Limit known = limit_of(call.rt, call.context, limit);
  if (known.access == Access::kNone) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const auto own = call.context->limits.find(limit);
  *value = own == call.context->limits.end() ? known.standard : own->second;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxSetLimit(CUlimit limit, size_t value) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const Limit known = limit_of(call.rt, call.context, limit);
  if (known.access == Access::kNone) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (known.access == Access::kReadOnly) return CUDA_ERROR_INVALID_VALUE;
  const size_t bounded = std::min(value, known.largest);
  call.context->limits[limit] = (bounded + known.multiple - 1) / known.multiple * known.multiple;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetCacheConfig(CUfunc_cache* config) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  *config = call.context->cache_config;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxSetCacheConfig(CUfunc_cache config) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!known_cache_config(config)) return CUDA_ERROR_INVALID_VALUE;
  call.context->cache_config = config;
  return CUDA_SUCCESS;
}

// Banks are four bytes wide on every architecture of the profiles.
SOFTGPU_API cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const bool known = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                     config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// There is no cache that could hold lines.
SOFTGPU_API cuCtxResetPersistingL2Cache() {
  Call call(Call::kContext);
  return call.error;
}

SOFTGPU_API cuCtxGetExecAffinity(CUexecAffinityParam* out, CUexecAffinityType type) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  const uint32_t sms = call.rt.device.device[call.context->device].sm_count;
  out->type = type;
  out->param.smCount.val = sms_of_percent(sms, call.context->sm_percent);
  return CUDA_SUCCESS;
}
