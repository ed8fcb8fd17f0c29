// Allocations, frees and what is said of the memory that is left.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "capture.h"
#include "driver.h"
#include "handlers/common.h"
#include "memory.h"
#include "observe.h"
#include "session.h"
#include "settings.h"

namespace tandem::shim::handlers {

// The limit's answer is exactly CUDA_ERROR_OUT_OF_MEMORY: allocators retry on that and on no other.
template <class Real>
CUresult counted(CUdeviceptr* address, uint64_t bytes, Real real) {
  Channel* channel = managed_channel();
  if (!memory::reserve(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real();
  if (result == CUDA_SUCCESS && address) {
    memory::remember(*address, bytes);
    if (channel) record_memory(*channel, shm::RecordKind::kAlloc, *address, bytes);
  } else {
    memory::give_back(bytes);
  }
  return result;
}

template <class Real>
CUresult uncounted(CUdeviceptr address, Real real) {
  Channel* channel = managed_channel();
  const uint64_t bytes = memory::forget(address);  // first: the driver may reuse the address at once
  const CUresult result = real();
  if (result != CUDA_SUCCESS) {
    if (bytes) memory::restore(address, bytes);
    return result;
  }
  memory::give_back(bytes);
  if (channel && bytes) record_memory(*channel, shm::RecordKind::kFree, address, bytes);
  return result;
}

template <class Call>
CUresult allocate(CUdeviceptr* address, size_t bytes) {
  return counted(address, bytes, [&] { return Call::real(address, bytes); });
}
template <class Call>
CUresult allocate_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                        unsigned element) {
  return counted(address, width * height,
                 [&] { return Call::real(address, pitch, width, height, element); });
}
template <class Call>
CUresult allocate_managed(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return counted(address, bytes, [&] { return Call::real(address, bytes, flags); });
}
template <class Call, class... A>
CUresult allocate_async(CUdeviceptr* address, size_t bytes, A... rest) {
  const auto real = [&] { return Call::real(address, bytes, rest...); };
  // Inside a capture this makes a graph node, not memory.
  if (any_capture() && is_capturing(stream_in(rest...))) return real();
  return counted(address, bytes, real);
}
template <class Call>
CUresult release(CUdeviceptr address) {
  if (Channel* channel = managed_channel()) before_block(*channel);  // may wait for the device
  return uncounted(address, [&] { return Call::real(address); });
}
template <class Call>
CUresult release_async(CUdeviceptr address, CUstream stream) {
  const auto real = [&] { return Call::real(address, stream); };
  if (any_capture() && is_capturing(stream)) return real();
  return uncounted(address, real);
}
template <class Call>
CUresult memory_info(size_t* free_bytes, size_t* total_bytes) {
  managed_channel();
  const CUresult result = Call::real(free_bytes, total_bytes);
  if (result == CUDA_SUCCESS) memory::limit_view(free_bytes, total_bytes);
  return result;
}

// Asked before there is a context, too: then the limit is what `tandem run` agreed with the daemon.
template <class Call>
CUresult total_memory(size_t* bytes, CUdevice device) {
  managed_channel();
  const CUresult result = Call::real(bytes, device);
  if (result != CUDA_SUCCESS || !bytes) return result;
  if (g_session.load(std::memory_order_acquire) == SessionState::kFresh) {
    *bytes = std::min<uint64_t>(*bytes, agreed_limit(*bytes));
  } else {
    memory::limit_view(nullptr, bytes);
  }
  return result;
}

}  // namespace tandem::shim::handlers
