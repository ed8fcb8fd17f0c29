#include "module.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "api.h"
#include "image.h"

namespace softgpu {
namespace {

using tandem::KernelEntry;

std::string name_of(const KernelEntry& entry) {
  Dl_info info{};
  return dladdr(entry.function, &info) && info.dli_sname ? info.dli_sname : "";
}

void add_function(Runtime& rt, Module* module, const std::string& name, const KernelEntry* entry) {
  if (name.empty() || module->functions.count(name)) return;
  auto* function = new Function{module, name, entry, 0, {}};
  if (entry->param_count > 0) {
    const uint32_t last = entry->param_count - 1;
    function->params_bytes = entry->param_offset[last] + entry->param_size[last];
  }
  module->functions[name] = function;
  rt.functions.insert(function);
}

template <class Visit>
void for_each_entry(void* handle, const Image& image, Visit visit) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return;
  const auto* entry = reinterpret_cast<const KernelEntry*>(map->l_addr + image.entries_offset);
  for (uint64_t i = 0; i < image.entries_bytes / sizeof *entry; ++i) {
    if (entry[i].abi == tandem::kKernelAbi) visit(entry + i);
  }
}

// Bodies for kernels that were compiled elsewhere: TANDEM_SOFTGPU_KERNELS, loaded once, kept.
const std::map<std::string, const KernelEntry*>& spare_bodies() {
  static const auto* bodies = [] {
    auto* found = new std::map<std::string, const KernelEntry*>;
    const char* setting = getenv("TANDEM_SOFTGPU_KERNELS");
    std::string paths = setting ? setting : "";
    while (!paths.empty()) {
      const size_t colon = paths.find(':');
      const std::string path = paths.substr(0, colon);
      paths = colon == std::string::npos ? "" : paths.substr(colon + 1);
      std::ifstream file(path, std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(file)), {});
      void* handle = bytes.size() > 64 ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
      if (!handle) {
        fprintf(stderr, "softgpu: TANDEM_SOFTGPU_KERNELS names '%s', which cannot be loaded\n",
                path.c_str());
        continue;
      }
      for_each_entry(handle, inspect_image(bytes.data()),
                     [&](const KernelEntry* e) { found->emplace(name_of(*e), e); });
    }
    return found;
  }();
  return *bodies;
}

CUresult open_library(const void* bytes, const Image& image, Module* module) {
  module->memory_fd = memfd_create("softgpu-module", MFD_CLOEXEC);
  const char* at = static_cast<const char*>(bytes);
  for (size_t left = image.bytes; left > 0;) {
    const ssize_t wrote = write(module->memory_fd, at, left);
    if (wrote <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
    at += wrote;
    left -= static_cast<size_t>(wrote);
  }
  // The loader goes by names: a number used again must not find the library of before.
  static unsigned loads = 0;
  const std::string path = "/proc/self/task/" + std::to_string(gettid()) + "/fd/" +
                           std::string(++loads % 512, '/') + std::to_string(module->memory_fd);
  module->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module->handle) {
    fprintf(stderr, "softgpu: kernel library cannot be loaded: %s\n", dlerror());
    return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
  }
  return CUDA_SUCCESS;
}

CUresult borrow_bodies(Runtime& rt, const Image& image, Module* module) {
  const auto& spare = spare_bodies();
  if (image.kind == ImageKind::kFatbin) {  // does not show its names
    for (const auto& [name, entry] : spare) add_function(rt, module, name, entry);
  }
  for (const std::string& name : image.kernels) {
    const auto found = spare.find(name);
    if (found != spare.end()) add_function(rt, module, name, found->second);
  }
  return module->functions.empty() ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

CUresult load_parts(Runtime& rt, const void* bytes, const Image& image, Module* module) {
  switch (image.kind) {
    case ImageKind::kKernelLibrary: {
      const CUresult result = open_library(bytes, image, module);
      if (result) return result;
      for_each_entry(module->handle, image,
                     [&](const KernelEntry* e) { add_function(rt, module, name_of(*e), e); });
      return CUDA_SUCCESS;
    }
    case ImageKind::kCubin:
    case ImageKind::kPtx:
    case ImageKind::kFatbin: return borrow_bodies(rt, image, module);
    case ImageKind::kUnknown: break;
  }
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

// A __device__ variable is ordinary data of the library; its range makes copies to it legal.
CUresult find_global(Runtime& rt, Module* module, const char* name, CUdeviceptr* address,
                     size_t* bytes) {
  void* found = module->handle ? dlsym(module->handle, name) : nullptr;
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

CUresult load_image(Runtime& rt, Context* context, const void* bytes, Module** made) {
  const Image image = inspect_image(bytes);
  auto* module = new Module{context, nullptr, -1, 0, {}, {}};
  const CUresult result = load_parts(rt, bytes, image, module);
  if (result) {
    unload(rt, module);
    return result;
  }
  rt.modules.insert(module);
  *made = module;
  return CUDA_SUCCESS;
}

CUresult load_file(Runtime& rt, Context* context, const char* path, Module** made) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() < 64) return CUDA_ERROR_INVALID_IMAGE;
  return load_image(rt, context, bytes.c_str(), made);
}

void unload(Runtime& rt, Module* module) {
  rt.modules.erase(module);
  for (const uintptr_t begin : module->globals) rt.ranges.erase(begin);
  for (const auto& [name, function] : module->functions) {
    rt.functions.erase(function);
    delete function;
  }
  if (module->handle) dlclose(module->handle);
  if (module->memory_fd >= 0) close(module->memory_fd);
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

SOFTGPU_API cuModuleLoadData(CUmodule* out, const void* image) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  return load_image(call.rt, call.context, image, reinterpret_cast<Module**>(out));
}

SOFTGPU_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int, CUjit_option*,
                               void**) {
  return cuModuleLoadData(out, image);
}

SOFTGPU_API cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return cuModuleLoadData(out, image);
}

SOFTGPU_API cuModuleLoad(CUmodule* out, const char* path) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  return load_file(call.rt, call.context, path, reinterpret_cast<Module**>(out));
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

SOFTGPU_API cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option*, void**, unsigned int,
                              CUlibraryOption*, void**, unsigned int) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !code) return CUDA_ERROR_INVALID_VALUE;
  return load_image(call.rt, nullptr, code, reinterpret_cast<Module**>(out));
}

SOFTGPU_API cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option*, void**,
                                  unsigned int, CUlibraryOption*, void**, unsigned int) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  return load_file(call.rt, nullptr, path, reinterpret_cast<Module**>(out));
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
