// Functions that the driver hands out by name.
#pragma once

#include <cuda.h>

#include "driver.h"
#include "lookup.h"

namespace tandem::shim::handlers {

// Returns the symbol that `function` is. If a call has several revisions, only the driver knows
// which one is its newest, and a wrapper of another revision would misread the arguments; so
// `look(version, &found)` asks the driver again. Null for a revision that is newer than our table.
template <class Look>
const char* symbol_behind(void* function, const Revisions& revisions, Look look) {
  if (revisions.count == 0) return nullptr;
  const char* newest = revisions.each[revisions.count - 1].exported;
  if (revisions.count == 1 && revisions.all_known) return newest;
  for (uint32_t i = 0; i < revisions.count; ++i) {
    void* found = nullptr;
    const auto& revision = revisions.each[i];
    if (look(revision.since, &found) == CUDA_SUCCESS && found == function) return revision.exported;
  }
  return revisions.all_known ? newest : nullptr;
}

template <class Look>
void substitute(const char* base, void** function, int version, cuuint64_t flags, Look look) {
  if (!base || !function || !*function) return;
  const Revisions revisions = revisions_of(base, version, flags);
  const char* symbol = symbol_behind(*function, revisions, look);
  void* wrapper = symbol ? wrapper_of(symbol) : nullptr;
  // Not a base name, but a driver may answer it: CUDA runtime 12.1 asks for
  // cuGraphInstantiateWithParams_ptsz, suffix included.
  if (revisions.count == 0) wrapper = wrapper_of(base, *function);
  if (wrapper) *function = wrapper;
}
template <class Call>
CUresult proc_address(const char* name, void** function, int version, cuuint64_t flags) {
  const CUresult result = Call::real(name, function, version, flags);
  if (result == CUDA_SUCCESS) {
    substitute(name, function, version, flags,
               [&](int older, void** known) { return Call::real(name, known, older, flags); });
  }
  return result;
}
template <class Call>
CUresult proc_address_v2(const char* name, void** function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult* status) {
  const CUresult result = Call::real(name, function, version, flags, status);
  if (result == CUDA_SUCCESS) {
    substitute(name, function, version, flags, [&](int older, void** known) {
      return Call::real(name, known, older, flags, nullptr);
    });
  }
  return result;
}

}  // namespace tandem::shim::handlers
