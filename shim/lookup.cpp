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

// The rows contain the names themselves: each pointer would be a relocation, 30 us of work in all
// for the loader in every process, and only processes that use CUDA need these tables.
using Name = char[56];

struct Symbol {
  Name name;
};

struct Wrapper {
  void* function;     // ours
  void* const* real;  // the driver's, null before it is known and if there is none
};

// Sorted by strcmp, like calls.def; tests/shim checks the order. Row i of the wrappers belongs to
// symbol i; the two are separate because the loader writes to any page that holds a pointer.
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

// Sorted by base, then version. Contains all functions of the driver, whoever handles them.
const Version kVersions[] = {
#define CU_VERSION(base, exported, since, per_thread) {#base, #exported, since, per_thread},
#include "shim_versions.inc"
#undef CU_VERSION
};

// From this version on a name may have a revision that we do not know.
constexpr int newest_version() {
  int newest = 0;
#define CU_VERSION(base, exported, since, per_thread) newest = since > newest ? since : newest;
#include "shim_versions.inc"
#undef CU_VERSION
  return newest;
}

template <class Row, size_t n>
const Row* first_not_before(const Row (&rows)[n], const char* key, Name Row::* field) {
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

// Answers dlsym for a name that begins with "cu", with any handle but RTLD_NEXT.
void* tandem_substitute(void* handle, const char* name) {
  using namespace tandem::shim;
  const Wrapper* row = row_of(name);
  if (!row || comes_second()) return real_dlsym(handle, name);
  void* found = real_dlsym(handle, name);
  if (!found) return nullptr;  // dlerror already has the reason
  const bool is_drivers = resolve_driver() && *row->real;
  if (found == row->function) return is_drivers ? found : not_found(name);
  // Another library's function of that name (a mock, a profiler) does not concern the shim.
  return is_drivers && found == *row->real ? row->function : found;
}
