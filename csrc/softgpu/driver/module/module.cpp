// Modules of a context: loading, unloading, and their contents.
#include "module.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api.h"
#include "jit_options.h"
#include "ptx_kernels.h"

namespace softgpu {

CUresult load_image(Runtime& rt, Context* context, Bytes image, LoadLog* log, Module** made) {
  auto* module = new Module{context};
  if (const CUresult bad = load_parts(rt, image, module, log)) {
    unload(rt, module);
    return bad;
  }
  for (const auto& [name, function] : module->functions) function->loaded = !loads_lazily();
  rt.modules.insert(module);
  *made = module;
  return CUDA_SUCCESS;
}

CUresult read_file(const char* path, std::string* bytes) {
  FILE* file = fopen(path, "rbe");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  char chunk[16384];
  for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;) bytes->append(chunk, got);
  const bool failed = ferror(file) != 0;  // for example a directory
  fclose(file);
  return failed ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_SUCCESS;
}

void unload(Runtime& rt, Module* module) {
  rt.modules.erase(module);
  if (module->library) module->library->modules.erase(module->context);
  for (const uintptr_t begin : module->globals) rt.ranges.erase(begin);
  for (const auto& [name, function] : module->functions) {
    rt.functions.erase(function);
    delete function;
  }
  for (const HostLibrary& library : module->libraries) {
    if (library.handle) dlclose(library.handle);
    if (library.memory_fd >= 0) close(library.memory_fd);
  }
  unload_ptx(module);
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

CUresult wait_for_all_work(Call& call) {
  std::vector<uint64_t> ops;
  for (const void* known : call.rt.streams) {
    ops.push_back(static_cast<const Stream*>(known)->last_op);
  }
  call.rt.wait_for_ops(call.lock, ops);
  return call.rt.life == Life::kReady ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

bool loads_lazily() {
  static const bool lazily = [] {
    const char* setting = getenv("CUDA_MODULE_LOADING");
    return !setting || strcmp(setting, "EAGER") != 0;
  }();
  return lazily;
}

CUresult find_function(Module* module, const char* name, Function** found) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const auto it = module->functions.find(name);
  if (it == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *found = it->second;
  return CUDA_SUCCESS;
}

namespace {

bool find_host_global(const Module& module, const char* name, uintptr_t* address, size_t* bytes) {
  void* found = nullptr;
  for (const HostLibrary& library : module.libraries) {
    if (!found && library.handle) found = dlsym(library.handle, name);
  }
  if (!found) return false;
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  if (!dladdr1(found, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
               RTLD_DL_SYMENT) ||
      !symbol) {
    return false;
  }
  *address = reinterpret_cast<uintptr_t>(found);
  *bytes = symbol->st_size;
  return true;
}

}  // namespace

// A __device__ variable is ordinary memory of the process; its range makes copies to it legal.
CUresult find_global(Runtime& rt, Module* module, const char* name, CUdeviceptr* address,
                     size_t* bytes) {
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  uintptr_t begin = 0;
  size_t size = 0;
  if (module->functions.count(name) || (!find_host_global(*module, name, &begin, &size) &&
                                        !find_ptx_global(*module, name, &begin, &size))) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (!rt.ranges.count(begin)) {
    const Context* context = module->context;
    Range range{begin, size, RangeKind::kGlobal, module->context, context ? context->device : 0};
    range.id = rt.next_number();
    rt.ranges.emplace(begin, range);
    module->globals.push_back(begin);
  }
  if (address) *address = begin;
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int count,
                               CUjit_option* options, void** values) {
  Call call(Call::kUnsafe);
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
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  if (const CUresult bad = read_file(path, &bytes)) return bad;
  LoadLog log;
  return load_image(call.rt, call.context, {bytes.data(), bytes.size()}, &log,
                    reinterpret_cast<Module**>(out));
}

SOFTGPU_API cuModuleUnload(CUmodule handle) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library) return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult bad = wait_for_all_work(call)) return bad;
  // Another thread may have unloaded it meanwhile.
  if (!checked<Module>(call.rt.modules, handle)) return CUDA_ERROR_INVALID_HANDLE;
  unload(call.rt, module);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = loads_lazily() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Function* found = nullptr;
  if (const CUresult bad = find_function(module, name, &found)) return bad;
  found->loaded = true;
  *out = reinterpret_cast<CUfunction>(found);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleEnumerateFunctions(CUfunction* out, unsigned int count, CUmodule handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [name, function] : module->functions) {
    if (count-- == 0) break;
    *out++ = reinterpret_cast<CUfunction>(function);
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                                 const char* name) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  auto* module = checked<Module>(call.rt.modules, handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  return find_global(call.rt, module, name, address, bytes);
}
