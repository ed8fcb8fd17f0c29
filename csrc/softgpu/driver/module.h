// Loaded images. A module belongs to a context, a library to the process; both are a Module here,
// and their functions and kernels are a Function.
#pragma once

#include "runtime.h"

namespace softgpu {

CUresult load_image(Runtime& rt, Context* context, const void* image, Module** made);
CUresult load_file(Runtime& rt, Context* context, const char* path, Module** made);
void unload(Runtime& rt, Module* module);
void unload_modules_of(Runtime& rt, Context* context);

}  // namespace softgpu
