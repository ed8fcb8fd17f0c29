// How clients find functions: cuGetProcAddress. (dlsym finds the exported names by itself.)
#include <algorithm>
#include <cstring>

#include "api.h"
#include "names.h"

namespace {

using softgpu::NameRow;

struct Found {
  void* function;
  CUdriverProcAddressQueryResult status;
};

bool before(const NameRow& row, const char* base) { return strcmp(row.base, base) < 0; }

// The newest flavour not newer than `version`; the wanted kind of default stream where it has one.
Found look_up(const char* base, int version, bool per_thread) {
  const NameRow* const end = softgpu::name_rows_end();
  const NameRow* row = std::lower_bound(softgpu::name_rows_begin(), end, base, before);
  Found found{nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
  int best = -1;
  for (; row != end && strcmp(row->base, base) == 0; ++row) {
    if (row->per_thread && !per_thread) continue;
    if (row->since > version) {
      if (!found.function) found.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      continue;
    }
    // A per-thread name wins over the plain one of the same or an older generation.
    const int rank = row->since + (row->per_thread ? 1'000'000 : 0);
    if (rank <= best) continue;
    best = rank;
    found = {row->function, CU_GET_PROC_ADDRESS_SUCCESS};
  }
  return found;
}

}  // namespace

SOFTGPU_API cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kKnown = CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                                CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!symbol || !pfn || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  const Found found =
      look_up(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  if (status) *status = found.status;
  *pfn = found.function;
  // With a place for the status the call itself succeeds, as the reference says.
  return found.function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SOFTGPU_API cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, version, flags, nullptr);
}

SOFTGPU_API cuGetExportTable(const void** table, const CUuuid*) {
  if (table) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
