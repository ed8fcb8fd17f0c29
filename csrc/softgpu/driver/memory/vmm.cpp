// Virtual memory management. A reserved range is PROT_NONE pages; physical memory is a memfd, so
// the same bytes can be mapped elsewhere too, or by another process. Access without cuMemMap and
// cuMemSetAccess faults, like touching a hole on a GPU.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc.h"
#include "memory.h"
#include "pool_arena.h"

namespace softgpu {
namespace {

constexpr size_t kGranularity = 2 * 1024 * 1024;

bool is_device(const Runtime& rt, int device) {
  return device >= 0 && static_cast<uint32_t>(device) < rt.device.device_count;
}

bool whole(size_t bytes) { return bytes != 0 && bytes % kGranularity == 0; }

bool reserve_pages(uintptr_t at, size_t bytes, bool fixed) {
  return mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (fixed ? MAP_FIXED : 0), -1,
              0) != MAP_FAILED;
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
  physical->handle = rt.next_number();
  rt.physicals[physical->handle] = physical;
  return physical->handle;
}

Physical* physical_of(Runtime& rt, CUmemGenericAllocationHandle handle) {
  const auto found = rt.physicals.find(handle);
  return found == rt.physicals.end() ? nullptr : found->second;
}

Range* reserved(Runtime& rt, CUdeviceptr at, size_t bytes) {
  Range* range = bytes > 0 ? find_range(rt, at, bytes) : nullptr;
  return range && range->kind == RangeKind::kReserved ? range : nullptr;
}

bool overlaps(const Range& range, CUdeviceptr at, size_t bytes) {
  for (const auto& [begin, mapping] : range.mappings) {
    if (begin < at + bytes && at < begin + mapping.bytes) return true;
  }
  return false;
}

// Visits the mappings inside [at, at + bytes); returns false unless they cover it exactly.
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
  switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_device(rt, prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const int types = prop->requestedHandleTypes;
  return (types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : CUDA_SUCCESS;
}

CUresult check_access(const Runtime& rt, const CUmemAccessDesc& desc) {
  if (desc.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(rt, desc.location.id)) return CUDA_ERROR_INVALID_DEVICE;
  switch (desc.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// Reserves `bytes` bytes of pages aligned to `align`, a power of two; returns 0 if there is no
// room.
uintptr_t reserve_aligned(size_t bytes, size_t align, CUdeviceptr hint) {
  if (bytes > SIZE_MAX - align) return 0;
  void* pages = mmap(reinterpret_cast<void*>(hint), bytes + align, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return 0;
  // The mapping has room to align; unmap the excess at both ends.
  const auto raw = reinterpret_cast<uintptr_t>(pages);
  const uintptr_t begin = (raw + align - 1) / align * align;
  if (begin > raw) munmap(pages, begin - raw);
  const uintptr_t end = begin + bytes, raw_end = raw + bytes + align;
  if (raw_end > end) munmap(reinterpret_cast<void*>(end), raw_end - end);
  return begin;
}

// The bytes count for every process that holds them. If all others have released them and only the
// descriptor kept them alive, they have left the ledger and enter it anew.
CUresult hold_imported(Call& call, size_t bytes, int device, uint64_t* allocation) {
  proto::MemReply reply;
  if (!call.rt.ask_retain(call.lock, *allocation, &reply)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (reply.status == CUDA_SUCCESS) return CUDA_SUCCESS;
  return reserve_memory(call, bytes, device, proto::MemKind::kVmm, allocation);
}

}  // namespace

int protection_of(const Mapping& mapping) {
  int protection = PROT_NONE;
  for (const auto& [device, flags] : mapping.access) {
    if (flags & CU_MEM_ACCESS_FLAGS_PROT_READ) protection |= PROT_READ;
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_WRITE;
  }
  return protection;
}

std::pair<uintptr_t, const Mapping*> mapping_at(const Range& range, uintptr_t at) {
  auto next = range.mappings.upper_bound(at);
  if (next == range.mappings.begin()) return {};
  --next;
  if (at - next->first >= next->second.bytes) return {};
  return {next->first, &next->second};
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* prop,
                                          CUmemAllocationGranularity_flags option) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!bytes || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                 option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult bad = check_prop(call.rt, prop);
  if (bad == CUDA_SUCCESS) *bytes = kGranularity;
  return bad;
}

SOFTGPU_API cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !whole(bytes) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((alignment & (alignment - 1)) != 0 || hint % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  const uintptr_t begin =
      reserve_aligned(bytes, alignment > kGranularity ? alignment : kGranularity, hint);
  if (begin == 0) return CUDA_ERROR_OUT_OF_MEMORY;
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
  bool unmappable = false;
  if (const CUresult bad = reserve_memory(call, bytes, prop->location.id, proto::MemKind::kVmm,
                                          &allocation, &unmappable)) {
    return bad;
  }
  const int fd = make_memory_file(call.rt, "vmm", prop->location.id, allocation, bytes);
  if (fd < 0) {
    call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, allocation});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* physical = new Physical{fd, bytes, allocation, *prop};
  // Compression is only a request; the properties show that it was not granted.
  physical->prop.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
  physical->unmappable = unmappable;
  *out = add_physical(call.rt, physical);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Physical* physical = physical_of(call.rt, handle);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  if (--physical->handles == 0) call.rt.physicals.erase(handle);
  drop_reference(call.rt, physical);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemMap(CUdeviceptr at, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Physical* physical = physical_of(call.rt, handle);
  Range* range = reserved(call.rt, at, bytes);
  if (!physical || !range || !whole(bytes) || at % kGranularity != 0 || flags != 0 || offset != 0 ||
      bytes > physical->bytes ||  // the manual: the offset must be zero for now
      overlaps(*range, at, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (physical->unmappable) return CUDA_ERROR_UNKNOWN;
  if (mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd,
           0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++physical->references;
  range->mappings[at] = Mapping{bytes, physical};
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
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult bad = check_access(call.rt, desc[i])) return bad;
  }
  bool granted = true;
  const bool covered = for_covered(*range, at, bytes, [&](uintptr_t begin, Mapping& mapping) {
    for (size_t i = 0; i < count; ++i) mapping.access[desc[i].location.id] = desc[i].flags;
    granted &= mprotect(reinterpret_cast<void*>(begin), mapping.bytes, protection_of(mapping)) == 0;
  });
  if (!covered) return CUDA_ERROR_INVALID_VALUE;
  return granted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SOFTGPU_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                           CUdeviceptr at) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Range* range = reserved(call.rt, at, 1);
  const Mapping* mapping = range ? mapping_at(*range, at).second : nullptr;
  if (!flags || !location || !mapping || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_device(call.rt, location->id)) return CUDA_ERROR_INVALID_DEVICE;
  const auto found = mapping->access.find(location->id);
  *flags = found == mapping->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Range* range = reserved(call.rt, at, 1);
  const Mapping* mapping = range ? mapping_at(*range, at).second : nullptr;
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  Physical* physical = mapping->physical;
  ++physical->references;
  ++physical->handles;
  call.rt.physicals[physical->handle] = physical;  // it may have been released
  *out = physical->handle;
  return CUDA_SUCCESS;
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
                                         CUmemAllocationHandleType type, unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Physical* physical = physical_of(call.rt, handle);
  if (!physical || !out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !(physical->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                           CUmemAllocationHandleType type) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0);
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
  *out = add_physical(call.rt, new Physical{fd, bytes, allocation, prop});
  return CUDA_SUCCESS;
}
