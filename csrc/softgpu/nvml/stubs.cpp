// Defines every NVML name as a weak stub; an implementation in another file overrides it.
#include "nvml.h"

namespace {
int stub() { return nvml::initialised() ? nvml::kNotSupported : nvml::kUninitialized; }
}  // namespace

extern "C" {
#define NVML_NAME(name) \
  __attribute__((weak, visibility("default"))) int name(void) { return stub(); }
#include "names.inc"
#undef NVML_NAME
}
