// A weak stub for every name that cuda.h exports; an implementation of the same name in another
// file replaces it at link time. Deliberately without cuda.h: stubs have no signature.
#include <cstdio>
#include <cstdlib>

#include "names.h"

namespace {

constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

int unimplemented(const char* name) {
  static const bool trace = getenv("TANDEM_SOFTGPU_TRACE") != nullptr;
  if (trace) fprintf(stderr, "softgpu: %s is not implemented\n", name);
  return kNotSupported;
}

}  // namespace

extern "C" {
#define SOFTGPU_NAME(name) \
  __attribute__((weak, visibility("default"))) int name(void) { return unimplemented(#name); }
#include "softgpu_names.inc"
#undef SOFTGPU_NAME
}

namespace softgpu {

#define CU_VERSION(base, symbol, since, per_thread) \
  {#base, reinterpret_cast<void*>(&symbol), since, per_thread},
static const NameRow kRows[] = {
#include "cu_versions.inc"
};
#undef CU_VERSION

const NameRow* name_rows_begin() { return kRows; }
const NameRow* name_rows_end() { return kRows + sizeof kRows / sizeof kRows[0]; }

}  // namespace softgpu
