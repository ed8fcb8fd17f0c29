// Managed memory in its plain form: pages that host and device access alike and that never move.
// What a program specifies about their placement is remembered, part by part, and reported back.
#include <algorithm>
#include <cstring>
#include <set>

#include "batch.h"
#include "memory.h"

namespace softgpu {

struct Advice {
  int read_mostly = 0;
  CUmemLocation preferred{}, prefetched{};  // type 0: none
  std::set<int> accessed_by{};              // device ordinals; CU_DEVICE_CPU
};

struct Managed {
  unsigned attached = 0;                // flags of the allocation or of the newest attach
  std::map<uintptr_t, Advice> parts{};  // each extends to the next part
};

namespace {

bool is_device(const Runtime& rt, const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
         static_cast<uint32_t>(location.id) < rt.device.device_count;
}

CUresult check_location(const Runtime& rt, const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return is_device(rt, location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// The older calls specify a device, or the CPU.
CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

int ordinal_of(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_INVALID: return CU_DEVICE_INVALID;
    case CU_MEM_LOCATION_TYPE_DEVICE: return location.id;
    default: return CU_DEVICE_CPU;
  }
}

Managed* managed_at(Runtime& rt, CUdeviceptr at, size_t bytes) {
  Range* range = bytes > 0 ? find_range(rt, at, bytes) : nullptr;
  return range ? range->managed.get() : nullptr;
}

// Visits the parts that make up [at, at + bytes), splitting those that extend beyond it.
template <class Visit>
void for_parts(Managed* managed, uintptr_t at, size_t bytes, Visit visit) {
  for (const uintptr_t cut : {at, at + bytes}) {
    const auto next = managed->parts.upper_bound(cut);
    if (next != managed->parts.begin()) managed->parts.emplace(cut, std::prev(next)->second);
  }
  for (auto it = managed->parts.find(at); it != managed->parts.end() && it->first < at + bytes;
       ++it) {
    visit(it->second);
  }
}

CUresult advise(CUdeviceptr at, size_t bytes, CUmem_advise advice, const CUmemLocation& location) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  Managed* managed = managed_at(call.rt, at, bytes);
  if (!managed || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
      advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool located =
      advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice >= CU_MEM_ADVISE_SET_ACCESSED_BY;
  if (located) {
    if (const CUresult bad = check_location(call.rt, location)) return bad;
  }
  for_parts(managed, at, bytes, [&](Advice& part) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY: part.read_mostly = 1; break;
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY: part.read_mostly = 0; break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: part.preferred = location; break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: part.preferred = {}; break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY: part.accessed_by.insert(ordinal_of(location)); break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY: part.accessed_by.erase(ordinal_of(location)); break;
    }
  });
  return CUDA_SUCCESS;
}

CUresult prefetch(CUdeviceptr at, size_t bytes, const CUmemLocation& location, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  Managed* managed = managed_at(on.call.rt, at, bytes);
  if (!managed) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_location(on.call.rt, location)) return bad;
  for_parts(managed, at, bytes, [&](Advice& part) { part.prefetched = location; });
  return CUDA_SUCCESS;  // nothing moves
}

struct Locations {
  const CUmemLocation* values;
  const size_t* firsts;
  size_t count;
};

// Discards and, if there are locations, prefetches. A discard permits forgetting the bytes, but
// here they stay.
CUresult move_batch(const CUdeviceptr* at, const size_t* bytes, size_t count, const Locations* to,
                    unsigned long long flags, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  Runtime& rt = on.call.rt;
  if (on.stream->legacy || !at || !bytes || count == 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!managed_at(rt, at[i], bytes[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!to) return CUDA_SUCCESS;
  if (!to->values || !settings_cover(to->firsts, to->count, count)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t k = 0; k < to->count; ++k) {
    if (const CUresult bad = check_location(rt, to->values[k])) return bad;
  }
  for (size_t i = 0, k = 0; i < count; ++i) {
    if (k + 1 < to->count && to->firsts[k + 1] == i) ++k;
    for_parts(managed_at(rt, at[i], bytes[i]), at[i], bytes[i],
              [&](Advice& part) { part.prefetched = to->values[k]; });
  }
  return CUDA_SUCCESS;
}

// The value that the whole range has, or `mixed` if its parts differ.
template <class Get>
int common(Managed* managed, uintptr_t at, size_t bytes, int mixed, Get get) {
  int value = 0;
  bool first = true;
  for_parts(managed, at, bytes, [&](const Advice& part) {
    const int here = get(part);
    value = first || value == here ? here : mixed;
    first = false;
  });
  return value;
}

CUresult accessed_by(void* to, size_t size, Managed* managed, uintptr_t at, size_t bytes) {
  if (size == 0 || size % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::set<int> everywhere;
  bool first = true;
  for_parts(managed, at, bytes, [&](const Advice& part) {
    std::set<int> both;
    std::set_intersection(everywhere.begin(), everywhere.end(), part.accessed_by.begin(),
                          part.accessed_by.end(), std::inserter(both, both.begin()));
    everywhere = first ? part.accessed_by : both;
    first = false;
  });
  std::vector<int> out(size / sizeof(int), CU_DEVICE_INVALID);
  std::copy_n(everywhere.begin(), std::min(everywhere.size(), out.size()), out.begin());
  memcpy(to, out.data(), size);
  return CUDA_SUCCESS;
}

CUresult range_attribute(void* to, size_t size, CUmem_range_attribute attribute, Managed* managed,
                         uintptr_t at, size_t bytes) {
  if (!to) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    return accessed_by(to, size, managed, at, bytes);
  }
  if (size != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  int value;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = common(managed, at, bytes, 0, [](const Advice& a) { return a.read_mostly; });
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      value = common(managed, at, bytes, CU_DEVICE_INVALID,
                     [](const Advice& a) { return ordinal_of(a.preferred); });
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      value = common(managed, at, bytes, CU_DEVICE_INVALID,
                     [](const Advice& a) { return ordinal_of(a.prefetched); });
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = common(managed, at, bytes, CU_MEM_LOCATION_TYPE_INVALID,
                     [](const Advice& a) { return static_cast<int>(a.preferred.type); });
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = common(managed, at, bytes, CU_MEM_LOCATION_TYPE_INVALID,
                     [](const Advice& a) { return static_cast<int>(a.prefetched.type); });
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = common(managed, at, bytes, 0, [](const Advice& a) { return a.preferred.id; });
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = common(managed, at, bytes, 0, [](const Advice& a) { return a.prefetched.id; });
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  memcpy(to, &value, sizeof value);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = allocate_linear(call, bytes, out)) return bad;
  Range& range = call.rt.ranges.find(*out)->second;
  range.managed = std::make_shared<Managed>();
  range.managed->attached = flags;
  range.managed->parts.emplace(range.begin, Advice{});
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemAdvise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device) {
  return advise(at, bytes, advice, location_of(device));
}
SOFTGPU_API cuMemAdvise_v2(CUdeviceptr at, size_t bytes, CUmem_advise advice,
                           CUmemLocation location) {
  return advise(at, bytes, advice, location);
}
SOFTGPU_API cuMemPrefetchAsync(CUdeviceptr at, size_t bytes, CUdevice device, CUstream stream) {
  return prefetch(at, bytes, location_of(device), stream);
}
SOFTGPU_API cuMemPrefetchAsync_v2(CUdeviceptr at, size_t bytes, CUmemLocation location,
                                  unsigned int flags, CUstream stream) {
  return flags == 0 ? prefetch(at, bytes, location, stream) : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuMemPrefetchBatchAsync(CUdeviceptr* at, size_t* bytes, size_t count,
                                    CUmemLocation* locations, size_t* firsts, size_t settings,
                                    unsigned long long flags, CUstream stream) {
  const Locations to{locations, firsts, settings};
  return move_batch(at, bytes, count, &to, flags, stream);
}
SOFTGPU_API cuMemDiscardBatchAsync(CUdeviceptr* at, size_t* bytes, size_t count,
                                   unsigned long long flags, CUstream stream) {
  return move_batch(at, bytes, count, nullptr, flags, stream);
}
SOFTGPU_API cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* at, size_t* bytes, size_t count,
                                              CUmemLocation* locations, size_t* firsts,
                                              size_t settings, unsigned long long flags,
                                              CUstream stream) {
  const Locations to{locations, firsts, settings};
  return move_batch(at, bytes, count, &to, flags, stream);
}

SOFTGPU_API cuMemRangeGetAttribute(void* to, size_t size, CUmem_range_attribute attribute,
                                   CUdeviceptr at, size_t bytes) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  Managed* managed = managed_at(call.rt, at, bytes);
  if (!managed) return CUDA_ERROR_INVALID_VALUE;
  return range_attribute(to, size, attribute, managed, at, bytes);
}

SOFTGPU_API cuMemRangeGetAttributes(void** to, size_t* sizes, CUmem_range_attribute* attributes,
                                    size_t count, CUdeviceptr at, size_t bytes) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  Managed* managed = managed_at(call.rt, at, bytes);
  if (!managed || !to || !sizes || !attributes || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult bad = range_attribute(to[i], sizes[i], attributes[i], managed, at, bytes);
    if (bad) return bad;
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamAttachMemAsync(CUstream stream, CUdeviceptr at, size_t bytes,
                                   unsigned int flags) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  Range* range = find_range(on.call.rt, at, 1);
  if (!range || !range->managed || at != range->begin || (bytes != 0 && bytes != range->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                     (flags == CU_MEM_ATTACH_SINGLE && !on.stream->legacy);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  range->managed->attached = flags;
  return CUDA_SUCCESS;
}
