// Loaded images. A module belongs to a context, a library to the process; both are a Module here,
// and their functions and kernels are a Function.
#pragma once

#include "loader.h"

namespace softgpu {

CUresult load_image(Runtime& rt, Context* context, Bytes image, LoadLog* log, Module** made);
// The bytes of a file; FILE_NOT_FOUND for what cannot be read.
CUresult read_file(const char* path, std::string* bytes);
void unload(Runtime& rt, Module* module);
void unload_modules_of(Runtime& rt, Context* context);

}  // namespace softgpu
