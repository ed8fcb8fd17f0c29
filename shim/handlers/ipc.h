// Memory of other processes. It belongs to them and counts there; here it is only remembered.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "driver.h"
#include "handlers/counted.h"
#include "handlers/sharing.h"
#include "imports.h"
#include "log.h"
#include "offers.h"
#include "session.h"
#include "swappable.h"
#include "use.h"

namespace tandem::shim::handlers {

inline void remember_imported(CUdeviceptr address) {
  const Place place = place_now();
  holdings::Entry entry;
  entry.kind = holdings::Kind::kImported;
  entry.key = address;
  entry.owner = place.context;
  entry.device = static_cast<uint8_t>(place.device);
  // Opened again, it has the same address.
  const holdings::Locked table;
  if (holdings::Entry* known = table->find(holdings::Kind::kImported, address)) ++known->count;
  else table->put(entry);
}

inline void forget_imported(CUdeviceptr address) {
  const holdings::Locked table;
  holdings::Entry* known = table->find(holdings::Kind::kImported, address);
  if (known && --known->count == 0) table->erase(known);
}

// The driver does not share virtual memory in this way, so the shim does (share.h).
template <class Call>
CUresult share_memory(CUipcMemHandle* handle, CUdeviceptr address) {
  managed_channel();
  CUresult shared = CUDA_ERROR_NOT_FOUND;
  if (handle) {
    const swap::Use use;
    shared = swap::offer(address, handle);
  }
  if (shared == CUDA_ERROR_NOT_FOUND) return share_handle<Call>(handle, address);
  if (shared == CUDA_SUCCESS) {
    ties::share_handle(handle, sizeof(*handle));
    return CUDA_SUCCESS;
  }
  say_once(
      "cuIpcGetMemHandle refuses memory that can be moved where the driver exports no "
      "descriptors: start a job whose processes share device memory with --no-swappable");
  return CUDA_ERROR_INVALID_VALUE;
}

// For uses that rely on the memory staying where it is now: pins it first.
template <class Real>
CUresult in_place(CUdeviceptr address, Real real) {
  managed_channel();
  CUipcMemHandle handle;  // nobody gets it
  const swap::Use use;
  if (swap::offer(address, &handle) == CUDA_ERROR_NOT_SUPPORTED) return CUDA_ERROR_NOT_SUPPORTED;
  return real();
}

// Exports to drivers of other devices.
template <class Call, class Type>
CUresult share_range(void* out, CUdeviceptr address, size_t bytes, Type type,
                     unsigned long long flags) {
  return in_place(address, [&] { return Call::real(out, address, bytes, type, flags); });
}

// Binds memory to a multicast object, where GPUs write to all members at once. Memory that the
// program created itself, and binds by its handle, never moves.
template <class Call>
CUresult bind_range(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address,
                    size_t bytes, unsigned long long flags) {
  return in_place(address, [&] { return Call::real(object, offset, address, bytes, flags); });
}

template <class Call>
CUresult bind_range(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                    CUdeviceptr address, size_t bytes, unsigned long long flags) {
  return in_place(address,
                  [&] { return Call::real(object, device, offset, address, bytes, flags); });
}

template <class Call>
CUresult open_memory(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  managed_channel();
  if (address && g_session.load(std::memory_order_acquire) == SessionState::kStarted &&
      swap::is_shared_handle(handle)) {
    swap::Range range;
    const CUresult result = swap::open_shared(&range, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    *address = range.base;
    remember_imported(range.base);
    ties::share_handle(&handle, sizeof(handle));
    return result;
  }
  const CUresult result = open_handle<Call>(address, handle, flags);
  if (result == CUDA_SUCCESS && address) remember_imported(*address);
  return result;
}

template <class Call>
CUresult close_memory(CUdeviceptr address) {
  CUresult result = swap::close_shared(address);
  if (result == CUDA_ERROR_NOT_FOUND) result = Call::real(address);
  if (result == CUDA_SUCCESS) forget_imported(address);
  return result;
}

}  // namespace tandem::shim::handlers
