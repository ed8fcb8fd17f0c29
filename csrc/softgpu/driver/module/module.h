// Loaded images: modules of a context, and libraries, which have a module in each context.
#pragma once

#include "loader.h"

namespace softgpu {

CUresult load_image(Runtime& rt, Context* context, Bytes image, LoadLog* log, Module** made);
// Reads a file; returns FILE_NOT_FOUND if it cannot be read.
CUresult read_file(const char* path, std::string* bytes);
void unload(Runtime& rt, Module* module);
void unload_modules_of(Runtime& rt, Context* context);
// Called before unloading: a program may unload right after a launch that it did not wait for.
CUresult wait_for_all_work(Call& call);

// CUDA_MODULE_LOADING: whether kernels are loaded when first needed (the default) or at once.
bool loads_lazily();
// The library's module in a context, created on first use.
CUresult module_in(Runtime& rt, Library* library, Context* context, Module** found);
// With eager loading, loads the modules of all libraries into a new context.
CUresult load_libraries_into(Runtime& rt, Context* context);

// Finds what a launch names: a CUfunction, or a CUkernel, which means its function in `context`.
// Returns INVALID_HANDLE for anything else.
CUresult resolve_function(Runtime& rt, Context* context, const void* handle, Function** found);
CUresult find_function(Module* module, const char* name, Function** found);
CUresult find_global(Runtime& rt, Module* module, const char* name, CUdeviceptr* address,
                     size_t* bytes);

}  // namespace softgpu
