// Physical memory and its mappings.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "driver.h"
#include "handlers/counted.h"
#include "handlers/pointers.h"
#include "handlers/sharing.h"
#include "physical.h"
#include "use.h"

namespace tandem::shim::handlers {

// The memory belongs to a device, not to a context. Host memory does not count against the device.
template <class Call>
CUresult create_physical(CUmemGenericAllocationHandle* out, size_t bytes,
                         const CUmemAllocationProp* prop, unsigned long long flags) {
  managed_channel();
  if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return Call::real(out, bytes, prop, flags);
  const auto device = static_cast<uint32_t>(prop->location.id);
  const auto want = [&] { return line::Want{device, bytes}; };
  const CUresult result = line::in_line(want, [&] {
    const swap::Use use;
    if (!admit(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult answer = with_room([&] { return Call::real(out, bytes, prop, flags); });
    if (answer != CUDA_SUCCESS || !out) undo_admission(device, bytes, answer);
    return answer;
  });
  if (result != CUDA_SUCCESS || !out) return result;
  physical::note_created(*out, device, bytes);
  memory::count_allocated();
  return result;
}

template <class Call>
CUresult import_physical(CUmemGenericAllocationHandle* out, void* handle,
                         CUmemAllocationHandleType type) {
  const CUresult result = import_memory<Call>(out, handle, type);
  if (result == CUDA_SUCCESS && out) physical::note_imported(*out);
  return result;
}

// The driver refuses this for linear memory, which is what the program takes the pieces for.
template <class Call>
CUresult retain_physical(CUmemGenericAllocationHandle* out, void* within) {
  if (known_range(reinterpret_cast<CUdeviceptr>(within)).bytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = Call::real(out, within);
  if (result == CUDA_SUCCESS && out)
    physical::note_retained(*out, reinterpret_cast<CUdeviceptr>(within));
  return result;
}

template <class Call>
CUresult release_physical(CUmemGenericAllocationHandle handle) {
  const uint64_t number = physical::begin_release(handle);
  const CUresult result = Call::real(handle);
  physical::end_release(handle, number, result == CUDA_SUCCESS);
  return result;
}

template <class Call>
CUresult map_memory(CUdeviceptr at, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult result = Call::real(at, bytes, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  physical::note_mapped(at, bytes, handle);
  if (Channel* channel = managed_channel())
    record_memory(*channel, shm::RecordKind::kAlloc, g_clock.ticks(), at, bytes);
  return result;
}

template <class Call>
CUresult unmap_memory(CUdeviceptr at, size_t bytes) {
  const uint64_t ticks = g_clock.ticks();  // as in freed()
  const CUresult result = Call::real(at, bytes);
  if (result != CUDA_SUCCESS) return result;
  physical::note_unmapped(at, bytes);
  if (Channel* channel = managed_channel())
    record_memory(*channel, shm::RecordKind::kFree, ticks, at, bytes);
  return result;
}

template <class Call>
CUresult map_tiles(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  const CUresult result = Call::real(list, count, stream);
  if (result != CUDA_SUCCESS || !list) return result;
  for (unsigned i = 0; i < count; ++i) {
    if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP &&
        list[i].memHandleType == CU_MEM_HANDLE_TYPE_GENERIC) {
      physical::keep(list[i].memHandle.memHandle);
    }
  }
  return result;
}

}  // namespace tandem::shim::handlers
