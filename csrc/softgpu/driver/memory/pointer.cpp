// Pointer attributes.
#include <cstring>

#include "memory.h"
#include "pool.h"

namespace softgpu {
namespace {

struct Pointer {
  const Context* current;
  const Range& range;
  CUdeviceptr at;
  uintptr_t mapping_begin = 0;
  const Mapping* mapping = nullptr;  // for reserved addresses

  Pointer(const Context* context, const Range& in, CUdeviceptr pointer)
      : current(context), range(in), at(pointer) {
    const auto found = mapping_at(range, at);
    mapping_begin = found.first;
    mapping = found.second;
  }
  bool reserved() const { return range.kind == RangeKind::kReserved; }
  bool mapped() const { return !reserved() || mapping; }
};

template <class Map>
unsigned access_in(const Map& access, int device) {
  const auto found = access.find(device);
  return found == access.end() ? 0 : static_cast<unsigned>(found->second);
}

// The values of CUmemAccess_flags and CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS are the same.
unsigned access_of(const Pointer& p) {
  constexpr unsigned kAll = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  const int device = p.current->device;
  if (p.reserved()) return p.mapping ? access_in(p.mapping->access, device) : 0;
  if (is_host(p.range) || p.range.managed || p.range.device == device) return kAll;
  if (p.range.pool) return access_in(p.range.pool->access, device);
  const Context* owner = p.range.context;
  return owner && p.current->peers.count(owner->number) ? kAll : 0U;
}

unsigned handle_types_of(const Pointer& p) {
  if (p.mapping) return p.mapping->physical->prop.requestedHandleTypes;
  const Pool* pool = p.range.pool;
  return static_cast<unsigned>(pool ? pool->props.handleTypes : CU_MEM_HANDLE_TYPE_NONE);
}

bool legacy_ipc_capable(const Range& range) {
  return range.kind == RangeKind::kDevice && !range.pool && !range.opens && !range.managed;
}

CUresult get(void* to, CUpointer_attribute attribute, const Pointer& p) {
  const Range& range = p.range;
  const bool host = is_host(range);
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(to, reinterpret_cast<CUcontext>(p.reserved() ? nullptr : range.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(to, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(to, p.at);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host || range.managed ? put(to, reinterpret_cast<void*>(p.at))
                                   : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put<unsigned>(to, range.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put<unsigned long long>(to, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put<unsigned>(to, range.managed != nullptr);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(to, p.mapping ? p.mapping->physical->prop.location.id : range.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(to, legacy_ipc_capable(range));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put<CUdeviceptr>(to, range.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put<size_t>(to, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED: return put<unsigned>(to, p.mapped());
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put<unsigned>(to, handle_types_of(p));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put<unsigned>(to, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return put<unsigned>(to, access_of(p));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(to, reinterpret_cast<CUmemoryPool>(range.pool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      if (!p.mapped()) return CUDA_ERROR_INVALID_VALUE;
      return put<size_t>(to, p.mapping ? p.mapping->bytes : range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      if (!p.mapped()) return CUDA_ERROR_INVALID_VALUE;
      return put<CUdeviceptr>(to, p.mapping ? p.mapping_begin : range.begin);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      if (!p.mapped()) return CUDA_ERROR_INVALID_VALUE;
      return put<unsigned long long>(to, p.mapping ? p.mapping->physical->handle : range.id);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return put<unsigned>(to, 0);
#if CUDA_VERSION >= 13040
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL: return put<int>(to, -1);
#endif
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// The value for memory that the driver does not know: empty, in the attribute's own width.
CUresult put_nothing(void* to, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put<int>(to, CU_DEVICE_INVALID);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return put<uint64_t>(to, 0);
    default: return put<unsigned>(to, 0);
  }
}

bool is_attribute(CUpointer_attribute attribute) {
#if CUDA_VERSION >= 13040
  constexpr int kLast = CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL;
#else
  constexpr int kLast = CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
#endif
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && static_cast<int>(attribute) <= kLast;
}

// Synchronous calls that did not wait are in a default stream.
void await_memops(Call& call, const Context* context) {
  std::vector<uint64_t> ops = {context->legacy->last_op};
  for (const auto& own : this_thread().default_streams) {
    if (own.context == context) ops.push_back(own.stream->last_op);
  }
  call.rt.wait_for_ops(call.lock, ops);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuPointerGetAttribute(void* to, CUpointer_attribute attribute, CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const Range* range = find_range(call.rt, pointer, 1);
  if (!to || !range) return CUDA_ERROR_INVALID_VALUE;
  return get(to, attribute, {call.context, *range, pointer});
}

// Unlike the call for one attribute, this succeeds for memory that the driver does not know.
SOFTGPU_API cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** to,
                                   CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (count == 0 || !attributes || !to) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (!to[i] || !is_attribute(attributes[i])) return CUDA_ERROR_INVALID_VALUE;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return CUDA_ERROR_NOT_SUPPORTED;
  }
  const Range* range = find_range(call.rt, pointer, 1);
  for (unsigned i = 0; i < count; ++i) {
    const bool told =
        range && get(to[i], attributes[i], {call.context, *range, pointer}) == CUDA_SUCCESS;
    if (!told) put_nothing(to[i], attributes[i]);
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                  CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  Range* range = find_range(call.rt, pointer, 1);
  if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !range ||
      range->kind == RangeKind::kRegistered) {  // CUDA did not create that memory
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned on;
  memcpy(&on, value, sizeof on);
  if (on > 1) return CUDA_ERROR_INVALID_VALUE;
  range->sync_memops = on == 1;
  if (on && range->context) await_memops(call, range->context);
  return CUDA_SUCCESS;
}
