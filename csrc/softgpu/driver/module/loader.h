// From the bytes of an image to the functions of a module.
#pragma once

#include <string>
#include <vector>

#include "bytes.h"
#include "runtime.h"

namespace softgpu {

// What a load has to say beside its error code; CU_JIT_ERROR_LOG_BUFFER shows it.
struct LoadLog {
  std::string info, error;
};

// Add the functions that `image` has for the module's device. On an error the module holds what was
// loaded until then, for unload().
// With `texts` PTX is only collected there: a link loads all of its inputs as one.
CUresult load_parts(Runtime& rt, Bytes image, Module* module, LoadLog* log,
                    std::vector<std::string>* texts = nullptr);

// The image alone, as a copy that needs nothing of the program's memory; what follows it is left out.
std::string copy_image(Bytes image);

// 90 for compute capability 9.0.
uint32_t arch_of_device(const Runtime& rt, int device);

}  // namespace softgpu
