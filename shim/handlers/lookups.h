// Functions handed out by name.
#pragma once

#include <cuda.h>

#include "driver.h"
#include "lookup.h"

namespace tandem::shim::handlers {

inline void substitute(const char* base, void** function, int version, cuuint64_t flags) {
  if (!base || !function || !*function) return;
  const char* exported = exported_symbol_of(base, version, flags);
  if (void* wrapper = exported ? wrapper_of(exported) : nullptr) *function = wrapper;
}
template <class Call>
CUresult proc_address(const char* name, void** function, int version, cuuint64_t flags) {
  const CUresult result = Call::real(name, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(name, function, version, flags);
  return result;
}
template <class Call>
CUresult proc_address_v2(const char* name, void** function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult* status) {
  const CUresult result = Call::real(name, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(name, function, version, flags);
  return result;
}

}  // namespace tandem::shim::handlers
