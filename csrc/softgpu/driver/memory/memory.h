// Memory that the device process has granted.
#pragma once

#include <cstring>
#include <utility>

#include "api.h"

namespace softgpu {

// Asks the ledger for memory. If memory is short, first gives back what the device's pools do not
// use. Releases the lock while it waits. *unmappable is set if an injected fault makes cuMemMap
// fail.
CUresult reserve_memory(Call& call, size_t bytes, int device, proto::MemKind kind,
                        uint64_t* allocation, bool* unmappable = nullptr);

// Allocates memory in the current context, as cuMemAlloc does.
CUresult allocate_linear(Call& call, size_t bytes, CUdeviceptr* out);

// The cuMemMap that contains an address of a reserved range, and its start; null if there is none.
std::pair<uintptr_t, const Mapping*> mapping_at(const Range& range, uintptr_t at);

// The page protection for a mapping: everything that any device may do.
int protection_of(const Mapping& mapping);

// Writes an attribute's value in the attribute's type.
template <class T>
CUresult put(void* to, T value) {
  memcpy(to, &value, sizeof value);
  return CUDA_SUCCESS;
}

// Whether it is host memory that devices can access.
inline bool is_host(const Range& range) {
  return range.kind == RangeKind::kHost || range.kind == RangeKind::kRegistered;
}

}  // namespace softgpu
