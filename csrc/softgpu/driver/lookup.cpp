// cuGetProcAddress: how programs find functions. (dlsym finds the exported names by itself.)
#include <algorithm>
#include <cstring>

#include "api.h"
#include "cuda_version.h"
#include "names.h"

namespace {

using softgpu::NameRow;

struct Found {
  void* function;
  CUdriverProcAddressQueryResult status;
};

bool before(const NameRow& row, const char* base) { return strcmp(row.base, base) < 0; }

bool is_there(const NameRow& row) { return row.since <= softgpu::cuda_version(); }

bool has_per_thread(const NameRow* row, const NameRow* end, const char* base) {
  return std::any_of(row, end, [&](const NameRow& other) {
    return other.per_thread && is_there(other) && strcmp(other.base, base) == 0;
  });
}

// The newest flavour not newer than `version`. If the name has a flavour for the wanted default
// stream, only that one counts: it did not exist before CUDA 7.0, and the plain one does not
// replace it.
Found look_up(const char* base, int version, bool per_thread) {
  const NameRow* const last = softgpu::name_rows_end();
  const NameRow* const first = std::lower_bound(softgpu::name_rows_begin(), last, base, before);
  const NameRow* const end =
      std::find_if(first, last, [&](const NameRow& row) { return strcmp(row.base, base) != 0; });
  const bool wants_per_thread = per_thread && has_per_thread(first, end, base);
  Found found{nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
  for (const NameRow* row = first; row != end; ++row) {  // by version
    if (row->per_thread != wants_per_thread || !is_there(*row)) continue;
    if (row->since <= version) found = {row->function, CU_GET_PROC_ADDRESS_SUCCESS};
    else if (!found.function) found.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  }
  return found;
}

}  // namespace

SOFTGPU_API cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kKnown =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!symbol || !pfn || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  const Found found =
      look_up(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  if (status) *status = found.status;
  *pfn = found.function;
  // Whether the function exists or not, and whether or not the caller reads the status.
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  if (!pfn) return CUDA_ERROR_INVALID_VALUE;
  void* found = nullptr;
  if (const CUresult bad = cuGetProcAddress_v2(symbol, &found, version, flags, nullptr)) return bad;
  if (!found) return CUDA_ERROR_NOT_FOUND;
  *pfn = found;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGetExportTable(const void** table, const CUuuid* id) {
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
