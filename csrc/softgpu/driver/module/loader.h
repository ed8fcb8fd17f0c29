// Turns the bytes of an image into the functions of a module.
#pragma once

#include <string>
#include <vector>

#include "bytes.h"
#include "runtime.h"

namespace softgpu {

// What a load reports besides its error code; CU_JIT_ERROR_LOG_BUFFER shows it.
struct LoadLog {
  std::string info, error;
};

// Adds the functions that `image` has for the module's device. On an error the module holds what
// was loaded so far, for unload(). With `texts`, PTX is only collected there: a link loads all of
// its inputs as one.
CUresult load_parts(Runtime& rt, Bytes image, Module* module, LoadLog* log,
                    std::vector<std::string>* texts = nullptr);

// Copies the image without what follows it; the copy does not depend on the program's memory.
std::string copy_image(Bytes image);

// Returns 90 for compute capability 9.0.
uint32_t arch_of_device(const Runtime& rt, int device);

}  // namespace softgpu
