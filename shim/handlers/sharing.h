// Handles that go to other processes or come from them: processes with the same handle belong
// together.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "driver.h"
#include "session.h"
#include "ties.h"

namespace tandem::shim::handlers {

template <class Call, class Handle, class Thing>
CUresult share_handle(Handle* handle, Thing thing) {
  managed_channel();
  const CUresult result = Call::real(handle, thing);
  if (result == CUDA_SUCCESS && handle) ties::share_handle(handle, sizeof(*handle));
  return result;
}

template <class Call, class Out, class Handle, class... A>
CUresult open_handle(Out* out, Handle handle, A... rest) {
  managed_channel();
  const CUresult result = Call::real(out, handle, rest...);
  if (result == CUDA_SUCCESS) ties::share_handle(&handle, sizeof(handle));
  return result;
}

inline void note_exported(const void* handle, CUmemAllocationHandleType type) {
  if (!handle) return;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    ties::share_exported(*static_cast<const int*>(handle));
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) ties::share_handle(handle, sizeof(CUmemFabricHandle));
}

// A descriptor is passed as the value of the pointer.
inline void note_imported(const void* handle, CUmemAllocationHandleType type) {
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    ties::share_imported(static_cast<int>(reinterpret_cast<intptr_t>(handle)));
  if (type == CU_MEM_HANDLE_TYPE_FABRIC && handle)
    ties::share_handle(handle, sizeof(CUmemFabricHandle));
}

template <class Call, class Thing>
CUresult export_memory(void* handle, Thing thing, CUmemAllocationHandleType type,
                       unsigned long long flags) {
  managed_channel();
  const CUresult result = Call::real(handle, thing, type, flags);
  if (result == CUDA_SUCCESS) note_exported(handle, type);
  return result;
}

template <class Call>
CUresult import_memory(CUmemGenericAllocationHandle* out, void* handle,
                       CUmemAllocationHandleType type) {
  managed_channel();
  const CUresult result = Call::real(out, handle, type);
  if (result == CUDA_SUCCESS) note_imported(handle, type);
  return result;
}

template <class Call>
CUresult import_pool_of_another(CUmemoryPool* out, void* handle, CUmemAllocationHandleType type,
                                unsigned long long flags) {
  managed_channel();
  const CUresult result = Call::real(out, handle, type, flags);
  if (result == CUDA_SUCCESS) note_imported(handle, type);
  return result;
}

// The only handle type that an endpoint has, and its size; cuda.h names them only from 13.3 on.
constexpr int kEndpointFabric = 1;
constexpr size_t kEndpointHandleBytes = CU_IPC_HANDLE_SIZE;

inline void note_endpoint(const void* handle, int type) {
  if (handle && type == kEndpointFabric) ties::share_handle(handle, kEndpointHandleBytes);
}

template <class Call, class Endpoint, class Type>
CUresult export_endpoint(void* handle, Endpoint endpoint, Type type) {
  managed_channel();
  const CUresult result = Call::real(handle, endpoint, type);
  if (result == CUDA_SUCCESS) note_endpoint(handle, type);
  return result;
}
template <class Call, class Endpoint, class Type>
CUresult import_endpoint(Endpoint endpoint, const void* handle, Type type) {
  managed_channel();
  const CUresult result = Call::real(endpoint, handle, type);
  if (result == CUDA_SUCCESS) note_endpoint(handle, type);
  return result;
}

}  // namespace tandem::shim::handlers
