#include "lookup.h"

#include <cuda.h>

#include <cstddef>
#include <cstring>

#include "driver.h"
#include "old_glibc.h"
#include "precedence.h"
#include "real_dlsym.h"

namespace tandem::shim {
namespace {

// Names stand in the rows themselves: a pointer would be a relocation each, 30 us of work for the
// loader in every process, and these tables are for those that use CUDA.
using Name = char[56];

struct Symbol {
  Name name;
};

struct Wrapper {
  void* function;      // ours
  void* const* real;   // the driver's, null while or when there is none
};

// Sorted as calls.def is, by strcmp; tests/shim checks the order. Row i of the wrappers belongs to
// symbol i; apart, because the loader writes to the page of a pointer.
const Symbol kSymbols[] = {
#define CALL(name) {#name},
#include "shim_calls.inc"
#undef CALL
};
const Wrapper kWrappers[] = {
#define CALL(name) \
  {reinterpret_cast<void*>(&::name), reinterpret_cast<void* const*>(&g_driver.name)},
#include "shim_calls.inc"
#undef CALL
};

struct Version {
  Name base;
  Name exported;
  int since;
  bool per_thread;
};

// Sorted by base, then version. All the driver's functions, whoever sees to them.
const Version kVersions[] = {
#define CU_VERSION(base, exported, since, per_thread) {#base, #exported, since, per_thread},
#include "shim_versions.inc"
#undef CU_VERSION
};

// From then on a name may have got a revision that we do not know.
constexpr int newest_version() {
  int newest = 0;
#define CU_VERSION(base, exported, since, per_thread) newest = since > newest ? since : newest;
#include "shim_versions.inc"
#undef CU_VERSION
  return newest;
}

template <class Row, size_t n>
const Row* first_not_before(const Row (&rows)[n], const char* key, Name Row::*field) {
  size_t low = 0, high = n;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (std::strcmp(rows[middle].*field, key) < 0) low = middle + 1;
    else high = middle;
  }
  return rows + low;
}

const Wrapper* row_of(const char* symbol) {
  const Symbol* found = first_not_before(kSymbols, symbol, &Symbol::name);
  if (found == kSymbols + sizeof(kSymbols) / sizeof(*kSymbols)) return nullptr;
  return std::strcmp(found->name, symbol) == 0 ? kWrappers + (found - kSymbols) : nullptr;
}

}  // namespace

void* not_found(const char* name) {
  void* libc = old_glibc::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return libc ? real_dlsym(libc, name) : nullptr;
}

void* wrapper_of(const char* exported_symbol) {
  const Wrapper* row = row_of(exported_symbol);
  return row && resolve_driver() && *row->real ? row->function : nullptr;
}

void* wrapper_of(const char* exported_symbol, const void* function) {
  const Wrapper* row = row_of(exported_symbol);
  return row && resolve_driver() && *row->real == function ? row->function : nullptr;
}

Revisions revisions_of(const char* base, int cuda_version, uint64_t flags) {
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  Revisions plain, threaded;
  const Version* end = kVersions + sizeof(kVersions) / sizeof(*kVersions);
  for (const Version* row = first_not_before(kVersions, base, &Version::base);
       row != end && std::strcmp(row->base, base) == 0 && row->since <= cuda_version; ++row) {
    Revisions& flavour = row->per_thread ? threaded : plain;
    if (flavour.count == Revisions::kMax) return {};
    flavour.each[flavour.count++] = {row->exported, row->since};
  }
  Revisions& found = per_thread && threaded.count ? threaded : plain;
  found.all_known = cuda_version <= newest_version();
  return found;
}

}  // namespace tandem::shim

// A name that begins with "cu", asked for by dlsym with any handle but RTLD_NEXT.
void* tandem_substitute(void* handle, const char* name) {
  using namespace tandem::shim;
  const Wrapper* row = row_of(name);
  if (!row || comes_second()) return real_dlsym(handle, name);
  void* found = real_dlsym(handle, name);
  if (!found) return nullptr;  // dlerror says why
  const bool is_drivers = resolve_driver() && *row->real;
  if (found == row->function) return is_drivers ? found : not_found(name);
  // Another library's function of that name (a mock, a profiler) is none of our business.
  return is_drivers && found == *row->real ? row->function : found;
}
