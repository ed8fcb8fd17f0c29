// The driver API of memory pools; pool.h has what they do.
#include <algorithm>
#include <cstring>

#include "memory.h"
#include "pool.h"

namespace softgpu {
namespace {

template <class T>
T get(const void* from) {
  T value;
  memcpy(&value, from, sizeof value);
  return value;
}

bool bad_device(const Runtime& rt, int device) {
  return device < 0 || static_cast<uint32_t>(device) >= rt.device.device_count;
}

CUresult check_props(const Runtime& rt, const CUmemPoolProps& props) {
  if (props.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED) return CUDA_ERROR_NOT_SUPPORTED;
  if (props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (props.win32SecurityAttributes) return CUDA_ERROR_INVALID_VALUE;
  const int types = props.handleTypes;
  if ((types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  switch (props.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return bad_device(rt, props.location.id) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult get_attribute(const Pool& pool, int attribute, void* to) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: return put(to, pool.follow_events);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return put(to, pool.opportunistic);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return put(to, pool.internal_dependencies);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return put(to, pool.release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return put(to, pool.reserved);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return put(to, pool.reserved_high);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return put(to, pool.used);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return put(to, pool.used_high);
#if CUDA_VERSION >= 13020
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE: return put(to, pool.props.allocType);
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES: return put(to, pool.props.handleTypes);
    case CU_MEMPOOL_ATTR_LOCATION_ID: return put<int>(to, pool.device);
    case CU_MEMPOOL_ATTR_LOCATION_TYPE: return put(to, pool.props.location.type);
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
      return put<uint64_t>(to, round_up(pool.props.maxSize, kPoolGranule));
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED: return put<int>(to, 0);
#endif
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_flag(int* flag, const void* from) {
  *flag = get<int>(from) != 0;
  return CUDA_SUCCESS;
}

CUresult reset_high(uint64_t* high, uint64_t current, const void* from) {
  if (get<uint64_t>(from) != 0) return CUDA_ERROR_INVALID_VALUE;
  *high = current;
  return CUDA_SUCCESS;
}

CUresult set_attribute(Pool* pool, int attribute, const void* from) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return set_flag(&pool->follow_events, from);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return set_flag(&pool->opportunistic, from);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return set_flag(&pool->internal_dependencies, from);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = get<uint64_t>(from);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return reset_high(&pool->reserved_high, pool->reserved, from);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return reset_high(&pool->used_high, pool->used, from);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult check_access(const Runtime& rt, const Pool& pool, const CUmemAccessDesc& desc) {
  if (desc.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (bad_device(rt, desc.location.id)) return CUDA_ERROR_INVALID_VALUE;
  switch (desc.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: return CUDA_SUCCESS;
    // The owner's own access cannot be taken away.
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
      return desc.location.id == pool.device ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUmemoryPool handle_of(Pool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }

CUresult set_current(Runtime& rt, int device, CUmemoryPool handle) {
  Pool* pool = pool_of(rt, handle);
  if (!pool || pool->imported || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  rt.current_pools[device] = pool;
  return CUDA_SUCCESS;
}

CUresult hand_over(Pool* pool, CUmemoryPool* out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(pool);
  return pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find(stream)) return bad;
  return allocate_in_order(on, current_pool(on.call.rt, on.stream->context->device), bytes, out);
}

SOFTGPU_API cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool handle,
                                    CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find(stream)) return bad;
  Pool* pool = pool_of(on.call.rt, handle);
  return pool ? allocate_in_order(on, pool, bytes, out) : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find(stream)) return bad;
  return free_in_order(on, pointer);
}

SOFTGPU_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !props) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = check_props(call.rt, *props);
  if (error) return error;
  Pool* pool = new_pool(call.rt, *props, &error);
  if (!pool) return error;
  *out = handle_of(pool);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemPoolDestroy(CUmemoryPool handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Pool* pool = pool_of(call.rt, handle);
  if (!pool || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  const auto current = call.rt.current_pools.find(pool->device);
  if (current != call.rt.current_pools.end() && current->second == pool) {
    call.rt.current_pools.erase(current);
  }
  pool->destroyed = true;
  reap_frees(call.rt);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Pool* pool = pool_of(call.rt, handle);
  if (!pool || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  trim(call.rt, pool, keep_bytes);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* to) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Pool* pool = pool_of(call.rt, handle);
  if (!pool || !to) return CUDA_ERROR_INVALID_VALUE;
  return get_attribute(*pool, attribute, to);
}

SOFTGPU_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* from) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Pool* pool = pool_of(call.rt, handle);
  if (!pool || !from) return CUDA_ERROR_INVALID_VALUE;
  return set_attribute(pool, attribute, from);
}

SOFTGPU_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Pool* pool = pool_of(call.rt, handle);
  if (!pool || !map) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult bad = check_access(call.rt, *pool, map[i])) return bad;
  }
  for (size_t i = 0; i < count; ++i) pool->access[map[i].location.id] = map[i].flags;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                               CUmemLocation* location) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Pool* pool = pool_of(call.rt, handle);
  if (!pool || !flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      bad_device(call.rt, location->id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto found = pool->access.find(location->id);
  *flags = location->id == pool->device  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : found == pool->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                                         : found->second;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (bad_device(call.rt, device)) return CUDA_ERROR_INVALID_DEVICE;
  return hand_over(default_pool(call.rt, device), out);
}

SOFTGPU_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (bad_device(call.rt, device)) return CUDA_ERROR_INVALID_DEVICE;
  return hand_over(current_pool(call.rt, device), out);
}

SOFTGPU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (bad_device(call.rt, device)) return CUDA_ERROR_INVALID_DEVICE;
  return set_current(call.rt, device, handle);
}

#if CUDA_VERSION >= 13000
static CUresult check_location(const Call& call, const CUmemLocation* location,
                               CUmemAllocationType type) {
  if (call.error) return call.error;
  if (!location) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return bad_device(call.rt, location->id) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SOFTGPU_API cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location,
                                   CUmemAllocationType type) {
  Call call(Call::kNothing);
  if (const CUresult bad = check_location(call, location, type)) return bad;
  return hand_over(default_pool(call.rt, location->id), out);
}

SOFTGPU_API cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  Call call(Call::kNothing);
  if (const CUresult bad = check_location(call, location, type)) return bad;
  return hand_over(current_pool(call.rt, location->id), out);
}

SOFTGPU_API cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                            CUmemoryPool handle) {
  Call call(Call::kNothing);
  if (const CUresult bad = check_location(call, location, type)) return bad;
  return set_current(call.rt, location->id, handle);
}
#endif
