// Linear device memory and pinned host memory.
//
// Device memory is host memory of this process that the device process has granted: its ledger
// decides, this process only maps pages. A device pointer is the address of those pages.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "capture.h"
#include "graph_memory.h"
#include "green_context.h"
#include "memory.h"
#include "pool.h"

namespace softgpu {
namespace {

constexpr size_t kPitchUnit = 512;

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
  call.rt.wait_for_ops(call.lock, last_ops_of(found->second.context));
  const auto again = call.rt.ranges.find(begin);
  // Freed by two threads at once.
  if (again == call.rt.ranges.end()) return CUDA_ERROR_INVALID_VALUE;
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

// The first known range that has a byte of [begin, begin + bytes).
const Range* overlapped(const Runtime& rt, uintptr_t begin, size_t bytes) {
  auto next = rt.ranges.upper_bound(begin);
  if (next != rt.ranges.begin() && begin - std::prev(next)->first < std::prev(next)->second.bytes) {
    return &std::prev(next)->second;
  }
  return next != rt.ranges.end() && next->first - begin < bytes ? &next->second : nullptr;
}

// Whether the process has pages at all of these addresses.
bool has_pages(uintptr_t begin, size_t bytes) {
  const uintptr_t page = begin / kPage * kPage;
  return msync(reinterpret_cast<void*>(page), bytes + (begin - page), MS_ASYNC) == 0;
}

}  // namespace

CUresult allocate_linear(Call& call, size_t bytes, CUdeviceptr* out) {
  if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t allocation = 0;
  const CUresult bad =
      reserve_memory(call, bytes, call.context->device, proto::MemKind::kLinear, &allocation);
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
                        uint64_t* allocation, bool* unmappable) {
  proto::MemReply reply;
  for (bool again = true; again;) {
    if (!call.rt.ask_memory(call.lock, bytes, device, kind, &reply)) {
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    // Before an allocation fails, memory that pools only keep for later is given back.
    again = reply.status == CUDA_ERROR_OUT_OF_MEMORY && trim_device(call.rt, device) > 0;
  }
  *allocation = reply.allocation;
  if (unmappable) *unmappable = reply.unmappable != 0;
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
  size_t row = 0, bytes = 0;
  if (__builtin_add_overflow(width, kPitchUnit - 1, &row) ||
      __builtin_mul_overflow(row = row / kPitchUnit * kPitchUnit, height, &bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = allocate_linear(call, bytes, out);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

// An address belongs to one context, so it is freed whatever context is current, or none.
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
  if (!base && !bytes) return CUDA_SUCCESS;  // nothing was requested
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
  call.rt.wait_for_ops(call.lock, last_ops_of(found->second.context));
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
  // CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED is 0, and there is no I/O memory.
  if (flags & (CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_IOMEMORY)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (bytes > UINTPTR_MAX - begin) return CUDA_ERROR_INVALID_VALUE;
  if (const Range* other = overlapped(call.rt, begin, bytes)) {
    return is_host(*other) ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
  }
  if (!has_pages(begin, bytes)) return CUDA_ERROR_INVALID_VALUE;
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
