// From the bytes of an image to the functions of a module.
#pragma once

#include <string>

#include "bytes.h"
#include "runtime.h"

namespace softgpu {

// What a load has to say beside its error code; CU_JIT_ERROR_LOG_BUFFER shows it.
struct LoadLog {
  std::string info, error;
};

// Add the functions that `image` has for the module's device. On an error the module holds what was
// loaded until then, for unload().
CUresult load_parts(Runtime& rt, Bytes image, Module* module, LoadLog* log);

// 90 for compute capability 9.0; of the context's device, or of the first one for libraries.
uint32_t device_arch(const Runtime& rt, const Context* context);

}  // namespace softgpu
