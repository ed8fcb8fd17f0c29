#include "loader.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "decompress.h"
#include "fatbin.h"
#include "image.h"
#include "link_image.h"
#include "ptx_kernels.h"

namespace softgpu {
namespace {

using tandem::KernelEntry;

constexpr int kMaxNesting = 4;  // a linked image of fat binaries of linked images...

struct Loading {
  Runtime& rt;
  Module* module;
  LoadLog* log;
  uint32_t arch;
  int depth;
  std::vector<std::string>* linked = nullptr;  // PTX of inputs that are loaded as one
};

CUresult load(const Loading& loading, Bytes given);

void complain(const Loading& loading, const std::string& what) {
  static const bool trace = getenv("TANDEM_SOFTGPU_TRACE") != nullptr;
  if (trace) fprintf(stderr, "softgpu: %s\n", what.c_str());
  loading.log->error += what + "\n";
}

// Few programs show the log of what they load, and nothing works after such a failure.
void tell_once(const std::string& problem) {
  static bool told = false;
  if (!told) fprintf(stderr, "softgpu: %s", problem.c_str());
  told = true;
}

std::string name_of(const KernelEntry& entry) {
  Dl_info info{};
  return dladdr(entry.function, &info) && info.dli_sname ? info.dli_sname : "";
}

// Returns null if the module already has the function.
Function* add_function(const Loading& loading, const std::string& name, const KernelEntry* entry,
                       const KernelTraits& traits) {
  Module* module = loading.module;
  if (name.empty() || module->functions.count(name)) return nullptr;
  auto* function = new Function{module, name, entry};
  function->traits = traits;
  if (entry->param_count > 0) {
    const uint32_t last = entry->param_count - 1;
    function->params_bytes = entry->param_offset[last] + entry->param_size[last];
  }
  module->functions[name] = function;
  loading.rt.functions.insert(function);
  return function;
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

// Bodies for kernels that were compiled elsewhere: TANDEM_SOFTGPU_KERNELS, loaded once and kept.
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
      const Image image = inspect_image({bytes.data(), bytes.size()});
      const bool good = image.kind == ImageKind::kKernelLibrary;
      void* handle = good ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
      if (!handle) {
        fprintf(stderr, "softgpu: TANDEM_SOFTGPU_KERNELS names '%s', which cannot be loaded\n",
                path.c_str());
        continue;
      }
      for_each_entry(handle, image, [&](const KernelEntry* e) { found->emplace(name_of(*e), e); });
    }
    return found;
  }();
  return *bodies;
}

CUresult open_library(const Loading& loading, Bytes bytes, void** handle) {
  loading.module->libraries.push_back({nullptr, memfd_create("softgpu-module", MFD_CLOEXEC)});
  HostLibrary& library = loading.module->libraries.back();
  while (bytes.size > 0) {
    const ssize_t wrote = write(library.memory_fd, bytes.data, bytes.size);
    if (wrote <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
    bytes = {bytes.data + wrote, bytes.size - static_cast<size_t>(wrote)};
  }
  // dlopen identifies libraries by path: a reused descriptor number must not find an earlier
  // library.
  static unsigned loads = 0;
  const std::string path = "/proc/self/task/" + std::to_string(syscall(SYS_gettid)) + "/fd/" +
                           std::string(++loads % 512, '/') + std::to_string(library.memory_fd);
  *handle = library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (*handle) return CUDA_SUCCESS;
  const char* why = dlerror();
  fprintf(stderr, "softgpu: kernel library cannot be loaded: %s\n", why);
  loading.log->error += std::string(why) + "\n";
  return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
}

CUresult load_library(const Loading& loading, const Image& image) {
  void* handle;
  if (const CUresult bad = open_library(loading, image.bytes, &handle)) return bad;
  for_each_entry(handle, image,
                 [&](const KernelEntry* e) { add_function(loading, name_of(*e), e, {}); });
  return CUDA_SUCCESS;
}

bool borrow_any(const Loading& loading, const Image& image) {
  const auto& spare = spare_bodies();
  bool any = false;
  for (const ImageKernel& kernel : image.kernels) {
    const auto found = spare.find(kernel.name);
    if (found == spare.end()) continue;
    add_function(loading, kernel.name, found->second, kernel.traits);
    any = true;
  }
  return any;
}

CUresult borrow_bodies(const Loading& loading, const Image& image) {
  if (borrow_any(loading, image)) return CUDA_SUCCESS;
  const std::string name = image.kernels.empty() ? "" : image.kernels.front().name;
  complain(loading,
           "no body for kernel '" + name +
               "': machine code is not executed. Compile to PTX "
               "or with line information (cuda.core: ProgramOptions(lineinfo=True), nvcc: "
               "-lineinfo); numba: pip uninstall nvidia-nvjitlink; or see TANDEM_SOFTGPU_KERNELS");
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

Bytes unwrapped(Bytes wrapper) {
  constexpr size_t kPointerAt = 8;
  const void* container = nullptr;
  wrapper.read(kPointerAt, &container);
  return readable_from(container);
}

// A cubin runs on devices of its major capability, from its minor one on; PTX runs on all devices
// from its own capability on.
bool runs_on(uint32_t device, FatbinKind kind, uint32_t arch) {
  return arch <= device && (kind == FatbinKind::kPtx || arch / 10 == device / 10);
}

CUresult interpret(const Loading& loading, const std::vector<std::string_view>& texts) {
  std::string problem;
  const PtxImage* own = load_ptx(texts, loading.module, &problem);
  if (!own) {
    if (!loading.module->functions.empty()) return CUDA_SUCCESS;
    complain(loading, problem);
    return CUDA_ERROR_INVALID_PTX;
  }
  for (const PtxKernel& kernel : kernels_of(*own)) {
    Function* made = add_function(loading, *kernel.name, kernel.entry, kernel.traits);
    if (made) made->ptx = kernel.function;
  }
  return CUDA_SUCCESS;
}

// Compiled bodies take precedence; the interpreter provides the other kernels and the variables.
CUresult load_text(const Loading& loading, const Image& image, std::string_view text) {
  borrow_any(loading, image);
  if (!loading.linked) return interpret(loading, {text});
  loading.linked->emplace_back(text);
  return CUDA_SUCCESS;
}

CUresult load_ptx_image(const Loading& loading, const Image& image) {
  if (image.arch > loading.arch) {
    complain(loading, "fatal: .target sm_" + std::to_string(image.arch) +
                          " is newer than the device, sm_" + std::to_string(loading.arch));
    return CUDA_ERROR_INVALID_PTX;
  }
  return load_text(loading, image, {image.bytes.data, image.bytes.size});
}

CUresult load_cubin(const Loading& loading, const Image& image) {
  if (image.arch != 0 && !runs_on(loading.arch, FatbinKind::kElf, image.arch)) {
    complain(loading, "the cubin is for sm_" + std::to_string(image.arch) + ", the device is sm_" +
                          std::to_string(loading.arch));
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (image.embedded_ptx.empty()) return borrow_bodies(loading, image);
  return load_text(loading, image, image.embedded_ptx);
}

CUresult load_entry(const Loading& loading, const FatbinEntry& entry) {
  std::string plain;
  Bytes payload = entry.payload;
  if (entry.compression == Compression::kLz4) {
    if (!decode_lz4(payload, entry.plain_bytes, &plain)) return CUDA_ERROR_INVALID_IMAGE;
  } else if (entry.compression == Compression::kZstd) {
    const ZstdResult result = decode_zstd(payload, entry.plain_bytes, &plain);
    if (result == ZstdResult::kNoLibrary) {
      complain(loading, "an entry is compressed with zstd, and there is no libzstd.so.1 here");
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (result == ZstdResult::kBroken) return CUDA_ERROR_INVALID_IMAGE;
  }
  if (entry.compression != Compression::kNone) payload = {plain.data(), plain.size()};
  return load(loading, payload);
}

// Tries the cubins that run here, best first, then PTX likewise, as the driver does.
CUresult load_fatbin(const Loading& loading, Bytes given) {
  std::vector<FatbinEntry> entries;
  if (!read_fatbin(given, &entries)) {
    complain(loading, "the fat binary is cut off");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [&](const FatbinEntry& entry) {
                                 return !runs_on(loading.arch, entry.kind, entry.arch);
                               }),
                entries.end());
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    if (a.kind != b.kind) return a.kind == FatbinKind::kElf;
    return a.arch > b.arch;
  });
  for (const FatbinEntry& entry : entries) {
    const CUresult result = load_entry(loading, entry);
    if (result != CUDA_ERROR_NO_BINARY_FOR_GPU) return result;
  }
  complain(loading, "the fat binary has nothing for sm_" + std::to_string(loading.arch));
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult load_linked(const Loading& outer, Bytes section) {
  std::vector<Bytes> inputs;
  if (!read_linked_inputs(section, &inputs)) return CUDA_ERROR_INVALID_IMAGE;
  std::vector<std::string> own;
  Loading loading = outer;
  if (!outer.linked) loading.linked = &own;
  for (const Bytes input : inputs) {
    if (const CUresult bad = load(loading, input)) return bad;
  }
  if (own.empty()) return CUDA_SUCCESS;
  return interpret(outer, {own.begin(), own.end()});
}

CUresult load(const Loading& outer, Bytes given) {
  Loading loading = outer;
  if (++loading.depth > kMaxNesting) return CUDA_ERROR_INVALID_IMAGE;
  const Image image = inspect_image(given);
  switch (image.kind) {
    case ImageKind::kKernelLibrary: return load_library(loading, image);
    case ImageKind::kCubin: return load_cubin(loading, image);
    case ImageKind::kLinked: return load_linked(loading, image.linked);
    case ImageKind::kPtx: return load_ptx_image(loading, image);
    case ImageKind::kFatbin: return load_fatbin(loading, given);
    case ImageKind::kFatbinWrapper: return load_fatbin(loading, unwrapped(given));
    case ImageKind::kBroken: break;
  }
  complain(loading, image.problem);
  return image.error;
}

}  // namespace

std::string copy_image(Bytes given) {
  const Image image = inspect_image(given);
  Bytes whole = image.bytes;
  if (image.kind == ImageKind::kFatbinWrapper) whole = unwrapped(given);
  if (is_fatbin(whole)) whole.size = fatbin_length(whole);
  return {whole.data, whole.size};
}

uint32_t arch_of_device(const Runtime& rt, int device) {
  const auto& info = rt.device.device[device];
  return info.compute_major * 10 + info.compute_minor;
}

CUresult load_parts(Runtime& rt, Bytes image, Module* module, LoadLog* log,
                    std::vector<std::string>* texts) {
  // All devices have the same profile.
  const int device = module->context ? module->context->device : 0;
  const CUresult result = load({rt, module, log, arch_of_device(rt, device), 0, texts}, image);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) tell_once(log->error);
  return result;
}

}  // namespace softgpu
