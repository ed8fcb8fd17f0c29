// Linear device memory, pinned host memory and what pointers say of themselves.
//
// Device memory is host memory of this process that the device process has agreed to: its ledger
// decides, we only map pages. A device pointer is their address.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "capture.h"
#include "graph_memory.h"
#include "memory.h"
#include "pool.h"

namespace softgpu {
namespace {

constexpr size_t kPage = 4096;

void* map_pages(size_t bytes) {
  void* pages = mmap(nullptr, round_up(bytes, kPage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void add_range(Call& call, void* begin, size_t bytes, RangeKind kind, uint64_t allocation,
               unsigned flags) {
  Range range{reinterpret_cast<uintptr_t>(begin), bytes, kind, call.context, call.context->device};
  range.allocation = allocation;
  range.flags = flags;
  range.id = call.rt.next_number();
  call.rt.ranges.emplace(range.begin, std::move(range));
}

// As on a GPU, freeing waits for the work that may still use the memory.
CUresult release(Call& call, uintptr_t begin) {
  CUresult of_graph;
  if (free_graph_memory(call.rt, begin, &of_graph)) return of_graph;
  const auto found = call.rt.ranges.find(begin);
  if (found == call.rt.ranges.end() || found->second.kind != RangeKind::kDevice ||
      found->second.opens > 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (found->second.pool) {
    free_now(call.rt, found->second);
    return CUDA_SUCCESS;
  }
  if (found->second.context->error) return found->second.context->error;
  std::vector<uint64_t> ops;
  for (const Stream* stream : found->second.context->streams) ops.push_back(stream->last_op);
  call.rt.wait_for_ops(call.lock, ops);
  const auto again = call.rt.ranges.find(begin);
  if (again == call.rt.ranges.end()) return CUDA_ERROR_INVALID_VALUE;  // freed twice at once
  unmap_range(again->second);
  call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, again->second.allocation});
  call.rt.ranges.erase(again);
  if (!call.rt.is_virtual()) call.rt.flush();
  return call.rt.life == Life::kReady ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult host_allocate(void** out, size_t bytes, unsigned flags) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!out || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  if (bytes == 0) return CUDA_SUCCESS;
  *out = map_pages(bytes);
  if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
  add_range(call, *out, bytes, RangeKind::kHost, 0, flags);
  return CUDA_SUCCESS;
}

bool is_host(const Range& range) {
  return range.kind == RangeKind::kHost || range.kind == RangeKind::kRegistered;
}

}  // namespace

CUresult allocate_linear(Call& call, size_t bytes, CUdeviceptr* out) {
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t allocation = 0;
  const CUresult bad = reserve_memory(call, bytes, call.context->device, proto::MemKind::kLinear,
                                      &allocation);
  if (bad) return bad;
  void* pages = map_pages(bytes);
  if (!pages) {
    call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, allocation});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  add_range(call, pages, bytes, RangeKind::kDevice, allocation, 0);
  *out = reinterpret_cast<CUdeviceptr>(pages);
  return CUDA_SUCCESS;
}

CUresult reserve_memory(Call& call, size_t bytes, int device, proto::MemKind kind,
                        uint64_t* allocation) {
  proto::MemReply reply;
  for (bool again = true; again;) {
    if (!call.rt.ask_memory(call.lock, bytes, device, kind, &reply)) {
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    // What pools only keep for later is given up before anybody goes without.
    again = reply.status == CUDA_ERROR_OUT_OF_MEMORY && trim_device(call.rt, device) > 0;
  }
  *allocation = reply.allocation;
  return static_cast<CUresult>(reply.status);
}

void unmap_range(Range& range) {
  if (range.fd >= 0) close(range.fd);
  munmap(reinterpret_cast<void*>(range.begin), round_up(range.bytes, kPage));
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  return allocate_linear(call, bytes, out);
}

SOFTGPU_API cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                               unsigned int element) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  if (!pitch || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  const size_t row = round_up(width, 512);
  const CUresult result = allocate_linear(call, row * height, out);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

// An address belongs to one context, so it is given back whatever context is current, or none.
SOFTGPU_API cuMemFree_v2(CUdeviceptr pointer) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (const CUresult bad = refuse_unsafe(call.rt)) return bad;
  return pointer ? release(call, pointer) : CUDA_SUCCESS;
}

SOFTGPU_API cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!free_bytes || !total_bytes) return CUDA_ERROR_INVALID_VALUE;
  proto::MemInfoReply reply;
  if (!call.rt.ask_memory_info(call.lock, call.context->device, &reply)) {
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  *free_bytes = reply.free_bytes;
  *total_bytes = reply.total_bytes;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const Range* range = find_range(call.rt, pointer, 1);
  if (!range || range->kind == RangeKind::kRegistered) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = range->begin;
  if (bytes) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return host_allocate(out, bytes, flags);
}

SOFTGPU_API cuMemAllocHost_v2(void** out, size_t bytes) { return host_allocate(out, bytes, 0); }

SOFTGPU_API cuMemFreeHost(void* pointer) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (const CUresult bad = refuse_unsafe(call.rt)) return bad;
  if (!pointer) return CUDA_SUCCESS;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const auto found = call.rt.ranges.find(begin);
  if (found == call.rt.ranges.end() || found->second.kind != RangeKind::kHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<uint64_t> ops;
  for (const Stream* stream : found->second.context->streams) ops.push_back(stream->last_op);
  call.rt.wait_for_ops(call.lock, ops);
  const auto again = call.rt.ranges.find(begin);
  if (again == call.rt.ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  unmap_range(again->second);
  call.rt.ranges.erase(again);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (!pointer || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (find_range(call.rt, begin, 1) || find_range(call.rt, begin + bytes - 1, 1)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  add_range(call, pointer, bytes, RangeKind::kRegistered, 0, flags);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemHostUnregister(void* pointer) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (const CUresult bad = refuse_unsafe(call.rt)) return bad;
  if (!pointer) return CUDA_ERROR_INVALID_VALUE;
  const auto found = call.rt.ranges.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == call.rt.ranges.end() || found->second.kind != RangeKind::kRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  call.rt.ranges.erase(found);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned int flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = find_range(call.rt, reinterpret_cast<uintptr_t>(pointer), 1);
  if (!range || !is_host(*range)) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = find_range(call.rt, reinterpret_cast<uintptr_t>(pointer), 1);
  if (!range || range->kind != RangeKind::kHost) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags;
  return CUDA_SUCCESS;
}

template <class T>
static CUresult put(void* to, T value) {
  memcpy(to, &value, sizeof value);
  return CUDA_SUCCESS;
}

static CUresult pointer_attribute(void* to, CUpointer_attribute attribute, const Range& range,
                                  CUdeviceptr pointer) {
  const bool host = is_host(range);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(to, reinterpret_cast<CUcontext>(
                         range.kind == RangeKind::kReserved ? nullptr : range.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(to, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(to, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host || range.managed ? put(to, reinterpret_cast<void*>(pointer))
                                   : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put<unsigned long long>(to, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put<unsigned>(to, range.managed != nullptr);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put<int>(to, range.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put<unsigned>(to, range.kind == RangeKind::kDevice && !range.pool && !range.opens &&
                                   !range.managed);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put<CUdeviceptr>(to, range.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put<size_t>(to, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED: return put<unsigned>(to, 1);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(to, reinterpret_cast<CUmemoryPool>(range.pool));
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

SOFTGPU_API cuPointerGetAttribute(void* to, CUpointer_attribute attribute, CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!to) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = find_range(call.rt, pointer, 1);
  return range ? pointer_attribute(to, attribute, *range, pointer) : CUDA_ERROR_INVALID_VALUE;
}

// Unlike the single one it succeeds for memory that the driver does not know, and answers zero.
SOFTGPU_API cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** to,
                                   CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!attributes || !to) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = find_range(call.rt, pointer, 1);
  for (unsigned i = 0; i < count; ++i) {
    if (range && pointer_attribute(to[i], attributes[i], *range, pointer) == CUDA_SUCCESS) continue;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      put<int>(to[i], -2);
    } else {
      put<unsigned>(to[i], 0);
    }
  }
  return CUDA_SUCCESS;
}
