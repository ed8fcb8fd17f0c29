// Memory that the device process has agreed to.
#pragma once

#include <cstring>
#include <utility>

#include "api.h"

namespace softgpu {

// Ask the ledger for memory; what pools of the device do not use is given back first where it is
// short. Gives up the lock while it waits. `unmappable`: a fault that physical memory may have.
CUresult reserve_memory(Call& call, size_t bytes, int device, proto::MemKind kind,
                        uint64_t* allocation, bool* unmappable = nullptr);

// Memory of the current context, as cuMemAlloc gives it.
CUresult allocate_linear(Call& call, size_t bytes, CUdeviceptr* out);

// The cuMemMap that an address of a reserved range lies in, and where it begins; null: none.
std::pair<uintptr_t, const Mapping*> mapping_at(const Range& range, uintptr_t at);

// What the pages of a mapping allow: what any device may do.
int protection_of(const Mapping& mapping);

// Answers with an attribute's value, of the type that it has.
template <class T>
CUresult put(void* to, T value) {
  memcpy(to, &value, sizeof value);
  return CUDA_SUCCESS;
}

// Host memory that devices reach.
inline bool is_host(const Range& range) {
  return range.kind == RangeKind::kHost || range.kind == RangeKind::kRegistered;
}

}  // namespace softgpu
