// Libraries and their kernels: they belong to the process, their code and variables to contexts.
#include "api.h"
#include "jit_options.h"
#include "module.h"

namespace softgpu {
namespace {

CUresult check_options(const CUlibraryOption* options, void** values, unsigned int count,
                       bool from_file) {
  if (count > 0 && (!options || !values)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] < 0 || options[i] >= CU_LIBRARY_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    // A promise about the caller's memory, which does not apply to a file. The driver keeps a copy
    // in any case.
    if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED && from_file) return CUDA_ERROR_INVALID_VALUE;
    // No kernel here calls a host function by a unified pointer.
    if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

CUresult load_library(Runtime& rt, Bytes image, LoadLog* log, CUlibrary* out) {
  Module* module = nullptr;
  if (const CUresult bad = load_image(rt, nullptr, image, log, &module)) return bad;
  rt.modules.erase(module);  // no context can name it yet
  auto* library = new Library{copy_image(image)};
  library->own = module;
  for (const auto& [name, function] : module->functions) {
    auto* kernel = new Kernel{library, function};
    library->kernels[name] = kernel;
    rt.kernels.insert(kernel);
  }
  rt.libraries.insert(library);
  *out = reinterpret_cast<CUlibrary>(library);
  if (loads_lazily()) return CUDA_SUCCESS;
  for (const void* known : rt.contexts) {
    auto* context = static_cast<Context*>(const_cast<void*>(known));
    if (const CUresult bad = module_in(rt, library, context, &module)) return bad;
  }
  return CUDA_SUCCESS;
}

void unload_library(Runtime& rt, Library* library) {
  while (!library->modules.empty()) unload(rt, library->modules.begin()->second);
  unload(rt, library->own);
  for (const auto& [name, kernel] : library->kernels) {
    rt.kernels.erase(kernel);
    delete kernel;
  }
  rt.libraries.erase(library);
  delete library;
}

// A call about a library in the current context.
struct LibraryCall {
  explicit LibraryCall(CUlibrary handle) {
    error = call.error;
    if (error) return;
    library = checked<Library>(call.rt.libraries, handle);
    error =
        library ? module_in(call.rt, library, call.context, &module) : CUDA_ERROR_INVALID_HANDLE;
  }
  Call call{Call::kContext};
  Library* library = nullptr;
  Module* module = nullptr;
  CUresult error;
};

}  // namespace

CUresult module_in(Runtime& rt, Library* library, Context* context, Module** found) {
  const auto known = library->modules.find(context);
  if (known != library->modules.end()) {
    *found = known->second;
    return CUDA_SUCCESS;
  }
  LoadLog log;
  const Bytes image{library->image.data(), library->image.size()};
  if (const CUresult bad = load_image(rt, context, image, &log, found)) return bad;
  (*found)->library = library;
  library->modules[context] = *found;
  for (const auto& [name, function] : (*found)->functions) {
    const auto kernel = library->kernels.find(name);
    if (kernel != library->kernels.end()) function->kernel = kernel->second;
  }
  return CUDA_SUCCESS;
}

CUresult load_libraries_into(Runtime& rt, Context* context) {
  if (loads_lazily()) return CUDA_SUCCESS;
  for (const void* known : rt.libraries) {
    Module* module;
    auto* library = static_cast<Library*>(const_cast<void*>(known));
    if (const CUresult bad = module_in(rt, library, context, &module)) return bad;
  }
  return CUDA_SUCCESS;
}

CUresult resolve_function(Runtime& rt, Context* context, const void* handle, Function** found) {
  *found = checked<Function>(rt.functions, handle);
  if (*found) return CUDA_SUCCESS;
  const auto* kernel = checked<Kernel>(rt.kernels, handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  Module* module;
  if (const CUresult bad = module_in(rt, kernel->library, context, &module)) return bad;
  return find_function(module, kernel->function->name.c_str(), found);
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* options,
                              void** values, unsigned int count, CUlibraryOption* library_options,
                              void** library_values, unsigned int library_count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !code) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_options(library_options, library_values, library_count, false)) {
    return bad;
  }
  return with_jit_options({count, options, values}, call.rt, [&](LoadLog* log) {
    return load_library(call.rt, readable_from(code), log, out);
  });
}

SOFTGPU_API cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options,
                                  void** values, unsigned int count,
                                  CUlibraryOption* library_options, void** library_values,
                                  unsigned int library_count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_options(library_options, library_values, library_count, true)) {
    return bad;
  }
  std::string bytes;
  if (const CUresult bad = read_file(path, &bytes)) return bad;
  return with_jit_options({count, options, values}, call.rt, [&](LoadLog* log) {
    return load_library(call.rt, {bytes.data(), bytes.size()}, log, out);
  });
}

SOFTGPU_API cuLibraryUnload(CUlibrary handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!checked<Library>(call.rt.libraries, handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = wait_for_all_work(call)) return bad;
  auto* library = checked<Library>(call.rt.libraries, handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;  // unloaded by another thread meanwhile
  unload_library(call.rt, library);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* library = checked<Library>(call.rt.libraries, handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = library->kernels.find(name);
  if (found == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUkernel>(found->second);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* library = checked<Library>(call.rt.libraries, handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryEnumerateKernels(CUkernel* out, unsigned int count, CUlibrary handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* library = checked<Library>(call.rt.libraries, handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [name, kernel] : library->kernels) {
    if (count-- == 0) break;
    *out++ = reinterpret_cast<CUkernel>(kernel);
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const LibraryCall in(handle);
  if (in.error) return in.error;
  *out = reinterpret_cast<CUmodule>(in.module);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                               const char* name) {
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  const LibraryCall in(handle);
  if (in.error) return in.error;
  return find_global(in.call.rt, in.module, name, address, bytes);
}

// Kernels of this device have neither managed variables nor unified functions.
SOFTGPU_API cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                                const char* name) {
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const bool known = checked<Library>(call.rt.libraries, handle);
  return known ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API cuLibraryGetUnifiedFunction(void** function, CUlibrary handle, const char* symbol) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!checked<Library>(call.rt.libraries, handle)) return CUDA_ERROR_INVALID_HANDLE;
  return function && symbol ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}
