// Virtual memory management. A reserved range is PROT_NONE pages; physical memory is a memfd, so
// the same bytes can be mapped again elsewhere, or by another process; access without cuMemMap and
// cuMemSetAccess faults like a touched hole on a GPU.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc.h"
#include "memory.h"

namespace softgpu {
namespace {

constexpr size_t kGranularity = 2 * 1024 * 1024;

bool whole(size_t bytes) { return bytes != 0 && bytes % kGranularity == 0; }

bool reserve_pages(uintptr_t at, size_t bytes, bool fixed) {
  return mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (fixed ? MAP_FIXED : 0), -1, 0) !=
         MAP_FAILED;
}

void drop_reference(Runtime& rt, Physical* physical) {
  if (--physical->references > 0) return;
  if (physical->allocation) {
    rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, physical->allocation});
    if (!rt.is_virtual()) rt.flush();
  }
  close(physical->fd);
  delete physical;
}

CUmemGenericAllocationHandle add_physical(Runtime& rt, Physical* physical) {
  const uint64_t handle = rt.next_number();
  rt.physicals[handle] = physical;
  return handle;
}

Physical* physical_of(Runtime& rt, CUmemGenericAllocationHandle handle) {
  const auto found = rt.physicals.find(handle);
  return found == rt.physicals.end() ? nullptr : found->second;
}

Range* reserved(Runtime& rt, CUdeviceptr at, size_t bytes) {
  Range* range = find_range(rt, at, bytes);
  return range && range->kind == RangeKind::kReserved ? range : nullptr;
}

bool overlaps(const Range& range, CUdeviceptr at, size_t bytes) {
  for (const auto& [begin, mapping] : range.mappings) {
    if (begin < at + bytes && at < begin + mapping.bytes) return true;
  }
  return false;
}

// Visits the mappings inside [at, at + bytes); false unless they cover all of it exactly.
template <class Visit>
bool for_covered(Range& range, CUdeviceptr at, size_t bytes, Visit visit) {
  uintptr_t next = at;
  while (next < at + bytes) {
    const auto found = range.mappings.find(next);
    if (found == range.mappings.end() || next + found->second.bytes > at + bytes) return false;
    next += found->second.bytes;
  }
  for (auto it = range.mappings.find(at); it != range.mappings.end() && it->first < at + bytes;) {
    const auto current = it++;
    visit(current->first, current->second);
  }
  return true;
}

CUresult check_prop(const Runtime& rt, const CUmemAllocationProp* prop) {
  if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->location.id < 0 ||
      static_cast<uint32_t>(prop->location.id) >= rt.device.device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

// The bytes count for everybody who has them. Where all others have let go and only the descriptor
// kept them, they have left the ledger and enter it anew.
CUresult hold_imported(Call& call, size_t bytes, int device, uint64_t* allocation) {
  proto::MemReply reply;
  if (!call.rt.ask_retain(call.lock, *allocation, &reply)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (reply.status == CUDA_SUCCESS) return CUDA_SUCCESS;
  return reserve_memory(call, bytes, device, proto::MemKind::kVmm, allocation);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* prop,
                                          CUmemAllocationGranularity_flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = check_prop(call.rt, prop);
  if (bad == CUDA_SUCCESS) *bytes = kGranularity;
  return bad;
}

SOFTGPU_API cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment & (alignment - 1)) return CUDA_ERROR_INVALID_VALUE;
  const size_t align = alignment > kGranularity ? alignment : kGranularity;
  // Reserve with room to align, then give back the ends.
  void* pages = mmap(reinterpret_cast<void*>(hint), bytes + align, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto raw = reinterpret_cast<uintptr_t>(pages);
  const uintptr_t begin = (raw + align - 1) / align * align;
  if (begin > raw) munmap(pages, begin - raw);
  const uintptr_t end = begin + bytes, raw_end = raw + bytes + align;
  if (raw_end > end) munmap(reinterpret_cast<void*>(end), raw_end - end);
  Range range{begin, bytes, RangeKind::kReserved, nullptr, 0};
  range.id = call.rt.next_number();
  call.rt.ranges.emplace(begin, std::move(range));
  *out = begin;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto found = call.rt.ranges.find(at);
  if (found == call.rt.ranges.end() || found->second.kind != RangeKind::kReserved ||
      found->second.bytes != bytes || !found->second.mappings.empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(reinterpret_cast<void*>(at), bytes);
  call.rt.ranges.erase(found);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                        const CUmemAllocationProp* prop, unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_prop(call.rt, prop)) return bad;
  uint64_t allocation = 0;
  if (const CUresult bad = reserve_memory(call, bytes, prop->location.id, proto::MemKind::kVmm,
                                          &allocation)) {
    return bad;
  }
  const int fd = make_memory_file(call.rt, "vmm", prop->location.id, allocation, bytes);
  if (fd < 0) {
    call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, allocation});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = add_physical(call.rt, new Physical{fd, bytes, allocation, *prop, 1});
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Physical* physical = physical_of(call.rt, handle);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  call.rt.physicals.erase(handle);
  drop_reference(call.rt, physical);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Physical* physical = physical_of(call.rt, handle);
  Range* range = reserved(call.rt, at, bytes);
  if (!physical || !range || !whole(bytes) || at % kGranularity != 0 || flags != 0 ||
      offset % kGranularity != 0 || offset + bytes > physical->bytes ||
      overlaps(*range, at, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++physical->references;
  range->mappings[at] = Mapping{bytes, physical, offset};
  range->device = physical->prop.location.id;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemUnmap(CUdeviceptr at, size_t bytes) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Range* range = reserved(call.rt, at, bytes);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uintptr_t> gone;
  const bool covered = for_covered(*range, at, bytes, [&](uintptr_t begin, Mapping& mapping) {
    reserve_pages(begin, mapping.bytes, true);
    drop_reference(call.rt, mapping.physical);
    gone.push_back(begin);
  });
  for (const uintptr_t begin : gone) range->mappings.erase(begin);
  return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* desc,
                           size_t count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Range* range = reserved(call.rt, at, bytes);
  if (!range || !desc || count == 0) return CUDA_ERROR_INVALID_VALUE;
  int protection = PROT_NONE;
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ) protection |= PROT_READ;
    if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_WRITE;
  }
  const bool covered = for_covered(*range, at, bytes, [&](uintptr_t begin, Mapping& mapping) {
    mprotect(reinterpret_cast<void*>(begin), mapping.bytes, protection);
  });
  return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const auto at = reinterpret_cast<uintptr_t>(address);
  Range* range = reserved(call.rt, at, 1);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [begin, mapping] : range->mappings) {
    if (at < begin || at >= begin + mapping.bytes) continue;
    ++mapping.physical->references;
    *out = add_physical(call.rt, mapping.physical);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                   CUmemGenericAllocationHandle handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Physical* physical = physical_of(call.rt, handle);
  if (!physical || !prop) return CUDA_ERROR_INVALID_VALUE;
  *prop = physical->prop;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType type,
                                         unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Physical* physical = physical_of(call.rt, handle);
  if (!physical || !out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !(physical->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<int*>(out) = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                           CUmemAllocationHandleType type) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const int fd =
      fcntl(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0);
  struct stat info;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  uint64_t allocation = 0;
  if (fd < 0 || fstat(fd, &info) != 0 || !whole(static_cast<size_t>(info.st_size)) ||
      !identify_memory(call.rt, fd, "vmm", &prop.location.id, &allocation)) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  if (const CUresult bad = hold_imported(call, bytes, prop.location.id, &allocation)) {
    close(fd);
    return bad;
  }
  *out = add_physical(call.rt, new Physical{fd, bytes, allocation, prop, 1});
  return CUDA_SUCCESS;
}
