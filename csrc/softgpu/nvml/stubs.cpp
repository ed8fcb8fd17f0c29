// Every NVML name exists as a weak stub; an implementation in another file takes its place.
namespace {
constexpr int kNotSupported = 3;  // NVML_ERROR_NOT_SUPPORTED
}

extern "C" {
#define NVML_NAME(name) \
  __attribute__((weak, visibility("default"))) int name(void) { return kNotSupported; }
#include "names.inc"
#undef NVML_NAME
}
