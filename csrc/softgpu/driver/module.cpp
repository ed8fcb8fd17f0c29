#include "module.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>

#include "api.h"
#include "jit_options.h"

namespace softgpu {
namespace {

// A __device__ variable is ordinary data of the library; its range makes copies to it legal.
CUresult find_global(Runtime& rt, Module* module, const char* name, CUdeviceptr* address,
                     size_t* bytes) {
  void* found = nullptr;
  for (const HostLibrary& library : module->libraries) {
    if (!found && library.handle) found = dlsym(library.handle, name);
  }
  if (!found || module->functions.count(name)) return CUDA_ERROR_NOT_FOUND;
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  if (!dladdr1(found, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
               RTLD_DL_SYMENT) || !symbol) {
    return CUDA_ERROR_NOT_FOUND;
  }
  const auto begin = reinterpret_cast<uintptr_t>(found);
  if (!rt.ranges.count(begin)) {
    Range range{begin, symbol->st_size, RangeKind::kGlobal, module->context, 0};
    range.id = rt.next_number();
    rt.ranges.emplace(begin, range);
    module->globals.push_back(begin);
  }
  if (address) *address = begin;
  if (bytes) *bytes = symbol->st_size;
  return CUDA_SUCCESS;
}

CUresult find_function(Call& call, const void* module_handle, const char* name, Function** found) {
  auto* module = checked<Module>(call.rt.modules, module_handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const auto it = module->functions.find(name);
  if (it == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *found = it->second;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult load_image(Runtime& rt, Context* context, Bytes image, LoadLog* log, Module** made) {
  auto* module = new Module{context};
  if (const CUresult bad = load_parts(rt, image, module, log)) {
    unload(rt, module);
    return bad;
  }
  rt.modules.insert(module);
  *made = module;
  return CUDA_SUCCESS;
}

CUresult read_file(const char* path, std::string* bytes) {
  FILE* file = fopen(path, "rbe");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  char chunk[16384];
  for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;) bytes->append(chunk, got);
  const bool failed = ferror(file) != 0;  // a directory, for one
  fclose(file);
  return failed ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_SUCCESS;
}

void unload(Runtime& rt, Module* module) {
  rt.modules.erase(module);
  for (const uintptr_t begin : module->globals) rt.ranges.erase(begin);
  for (const auto& [name, function] : module->functions) {
    rt.functions.erase(function);
    delete function;
  }
  for (const HostLibrary& library : module->libraries) {
    if (library.handle) dlclose(library.handle);
    if (library.memory_fd >= 0) close(library.memory_fd);
  }
  delete module;
}

void unload_modules_of(Runtime& rt, Context* context) {
  std::vector<Module*> victims;
  for (const void* known : rt.modules) {
    auto* module = static_cast<Module*>(const_cast<void*>(known));
    if (module->context == context) victims.push_back(module);
  }
  for (Module* module : victims) unload(rt, module);
}

}  // namespace softgpu

using namespace softgpu;

// Unloading waits for what runs: the program may unload right after a launch it did not wait for.
static CUresult unload_checked(Call& call, void* handle) {
  auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<uint64_t> ops;
  for (const void* known : call.rt.streams) {
    ops.push_back(static_cast<const Stream*>(known)->last_op);
  }
  call.rt.wait_for_ops(call.lock, ops);
  if (call.rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  unload(call.rt, module);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int count,
                               CUjit_option* options, void** values) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  return with_jit_options({count, options, values}, call.rt, [&](LoadLog* log) {
    return load_image(call.rt, call.context, readable_from(image), log,
                      reinterpret_cast<Module**>(out));
  });
}

SOFTGPU_API cuModuleLoadData(CUmodule* out, const void* image) {
  return cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}

SOFTGPU_API cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return cuModuleLoadData(out, image);
}

SOFTGPU_API cuModuleLoad(CUmodule* out, const char* path) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  if (const CUresult bad = read_file(path, &bytes)) return bad;
  LoadLog log;
  return load_image(call.rt, call.context, {bytes.data(), bytes.size()}, &log,
                    reinterpret_cast<Module**>(out));
}

SOFTGPU_API cuModuleUnload(CUmodule handle) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  return unload_checked(call, handle);
}

SOFTGPU_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return find_function(call, handle, name, reinterpret_cast<Function**>(out));
}

SOFTGPU_API cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                                 const char* name) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  return find_global(call.rt, module, name, address, bytes);
}

SOFTGPU_API cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* options,
                              void** values, unsigned int count, CUlibraryOption*, void**,
                              unsigned int) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !code) return CUDA_ERROR_INVALID_VALUE;
  return with_jit_options({count, options, values}, call.rt, [&](LoadLog* log) {
    return load_image(call.rt, nullptr, readable_from(code), log, reinterpret_cast<Module**>(out));
  });
}

SOFTGPU_API cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options,
                                  void** values, unsigned int count, CUlibraryOption*, void**,
                                  unsigned int) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  if (const CUresult bad = read_file(path, &bytes)) return bad;
  return with_jit_options({count, options, values}, call.rt, [&](LoadLog* log) {
    return load_image(call.rt, nullptr, {bytes.data(), bytes.size()}, log,
                      reinterpret_cast<Module**>(out));
  });
}

SOFTGPU_API cuLibraryUnload(CUlibrary handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  return unload_checked(call, handle);
}

SOFTGPU_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return find_function(call, handle, name, reinterpret_cast<Function**>(out));
}

SOFTGPU_API cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                               const char* name) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  return find_global(call.rt, module, name, address, bytes);
}
