// Memory pools and what is allocated from them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "capture.h"
#include "driver.h"
#include "graph_memory.h"
#include "handlers/counted.h"
#include "handlers/ipc.h"
#include "handlers/sharing.h"
#include "pool_rows.h"
#include "slots.h"
#include "use.h"

namespace tandem::shim::handlers {

template <class Call, class Real>
CUresult allocate_in_pool(uint32_t row, CUdeviceptr* address, size_t bytes, CUstream stream,
                          Real real) {
  if (row == pools::kForeign) return real();
  const uint64_t named = normalise(stream, Call::kPerThread);
  if (row == pools::kNoRow) {
    return counted(holdings::Kind::kLinear, address, bytes, real, [bytes] { return bytes; }, named);
  }
  Channel* channel = managed_channel();
  const auto want = [&] {
    const pools::Growth growth = pools::growth_of(row, bytes);
    return line::Want{growth.device, growth.bytes};
  };
  const CUresult told = line::in_line(want, [&] {
    const swap::Use use;
    pools::Growth growth;
    if (!pools::begin_allocation(row, bytes, &growth)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUdeviceptr before = address ? *address : 0;
    const CUresult result = real();
    const CUresult answer =
        pools::end_allocation(growth, result, address ? *address : 0, bytes, as_stream(named));
    if (answer != result) *address = before;
    return answer;
  });
  if (channel && told == CUDA_SUCCESS)
    record_memory(*channel, shm::RecordKind::kAlloc, g_clock.ticks(), *address, bytes, named);
  return told;
}

// Inside a capture, an allocation makes a graph node instead of memory.
template <class Call>
bool becomes_node(CUstream stream) {
  if (!any_capture() || !is_capturing(as_stream(normalise(stream, Call::kPerThread)))) return false;
  graph_memory::note_node();
  return true;
}

template <class Call>
CUresult allocate_async(CUdeviceptr* address, size_t bytes, CUstream stream) {
  const auto real = [&] { return Call::real(address, bytes, stream); };
  if (becomes_node<Call>(stream)) return real();
  managed_channel();
  return allocate_in_pool<Call>(pools::current_of(device_of(stream)), address, bytes, stream, real);
}

template <class Call>
CUresult allocate_from_pool(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                            CUstream stream) {
  const auto real = [&] { return Call::real(address, bytes, pool, stream); };
  if (!pool || becomes_node<Call>(stream)) return real();
  managed_channel();
  return allocate_in_pool<Call>(pools::find(pool, device_of(stream)), address, bytes, stream, real);
}

template <class Call>
CUresult create_pool(CUmemoryPool* pool, const CUmemPoolProps* props) {
  const CUresult result = Call::real(pool, props);
  if (result == CUDA_SUCCESS && pool && props) pools::note_created(*pool, *props);
  return result;
}

// The pool's memory belongs to another process.
template <class Call>
CUresult import_pool(CUmemoryPool* pool, void* handle, CUmemAllocationHandleType type,
                     unsigned long long flags) {
  const CUresult result = import_pool_of_another<Call>(pool, handle, type, flags);
  if (result == CUDA_SUCCESS && pool) pools::note_foreign(*pool);
  return result;
}

// The default and the current pool of a location: the host's pools hold no device memory.
template <class Call>
CUresult pool_of_place(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult result = Call::real(pool, location, type);
  if (result == CUDA_SUCCESS && pool && location && location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    pools::note_foreign(*pool);
  return result;
}

template <class Call>
CUresult destroy_pool(CUmemoryPool pool) {
  const uint32_t row = pools::begin_destroy(pool);
  const CUresult result = Call::real(pool);
  pools::end_destroy(row, pool, result == CUDA_SUCCESS);
  return result;
}

template <class Call>
CUresult trim_pool(CUmemoryPool pool, size_t keep_bytes) {
  const CUresult result = Call::real(pool, keep_bytes);
  if (result == CUDA_SUCCESS) pools::refresh_if_known(pool);
  return result;
}

template <class Call>
CUresult set_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const CUresult result = Call::real(pool, attribute, value);
  if (result == CUDA_SUCCESS && value && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    pools::set_threshold(pool, *static_cast<const cuuint64_t*>(value));
  return result;
}

// Afterwards the shim asks again which pool cuMemAllocAsync uses.
template <class Call, class... A>
CUresult set_current_pool(A... arguments) {
  const CUresult result = Call::real(arguments...);
  pools::forget_current();
  return result;
}

template <class Call, class... A>
CUresult import_pool_pointer(CUdeviceptr* address, A... rest) {
  const CUresult result = Call::real(address, rest...);
  if (result == CUDA_SUCCESS && address) remember_imported(*address);
  return result;
}

}  // namespace tandem::shim::handlers
