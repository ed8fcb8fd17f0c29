// cuLink*: collects images and combines them into one. Each input is loaded on trial when it is
// added, so its errors appear where a compiler's would.
#include <set>

#include "api.h"
#include "image.h"
#include "jit_options.h"
#include "link_image.h"
#include "module.h"
#include "ptx_kernels.h"

namespace softgpu {

struct Link {
  Context* context;
  JitOptions options;
  LoadLog log;
  uint64_t work_ns = 0;
  std::vector<std::string> inputs;
  std::set<std::string> names;  // of the kernels added so far
  bool complete = false;
  std::string image;

  void report() const { options.report(log, work_ns); }
};

namespace {

bool fits(CUjitInputType type, ImageKind kind) {
  switch (type) {
    case CU_JIT_INPUT_CUBIN:
      return kind == ImageKind::kCubin || kind == ImageKind::kKernelLibrary ||
             kind == ImageKind::kLinked;
    case CU_JIT_INPUT_PTX: return kind == ImageKind::kPtx;
    case CU_JIT_INPUT_FATBINARY: return kind == ImageKind::kFatbin;
    default: return true;
  }
}

// Loads an input on trial and collects the names of its kernels.
CUresult try_image(Runtime& rt, Link* link, Bytes bytes, std::set<std::string>* names) {
  Module* trial = nullptr;
  if (const CUresult bad = load_image(rt, link->context, bytes, &link->log, &trial)) return bad;
  for (const auto& [name, function] : trial->functions) names->insert(name);
  unload(rt, trial);
  return CUDA_SUCCESS;
}

// Like try_image, for an input whose PTX may need the other inputs.
CUresult try_input(Runtime& rt, Link* link, Bytes bytes, std::set<std::string>* names) {
  auto* trial = new Module{link->context};
  std::vector<std::string> texts;
  CUresult result = load_parts(rt, bytes, trial, &link->log, &texts);
  const bool has_bodies = !trial->functions.empty();
  for (const auto& [name, function] : trial->functions) names->insert(name);
  unload(rt, trial);
  for (const std::string& text : texts) {
    std::string problem;
    if (result || check_ptx_input(text, names, &problem) || has_bodies) continue;
    link->log.error += problem + "\n";
    result = CUDA_ERROR_INVALID_PTX;
  }
  return result;
}

CUresult add_image(Runtime& rt, Link* link, CUjitInputType type, Bytes bytes) {
  const Image image = inspect_image(bytes);
  if (image.kind != ImageKind::kBroken && !fits(type, image.kind)) return CUDA_ERROR_INVALID_IMAGE;
  std::set<std::string> names;
  if (const CUresult bad = try_input(rt, link, bytes, &names)) return bad;
  bool twice = false;
  for (const std::string& name : names) {
    if (link->names.insert(name).second) continue;
    link->log.error += "error: multiple definition of '" + name + "'\n";
    twice = true;
  }
  if (twice) return CUDA_ERROR_INVALID_IMAGE;
  link->inputs.push_back(copy_image(bytes));
  return CUDA_SUCCESS;
}

CUresult add_input(Runtime& rt, Link* link, CUjitInputType type, Bytes bytes) {
  std::vector<Bytes> images;
  if (!find_device_code(bytes, &images)) {
    link->log.error += "error: the object or archive is broken\n";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (images.empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  for (const Bytes image : images) {
    if (const CUresult bad = add_image(rt, link, type, image)) return bad;
  }
  return CUDA_SUCCESS;
}

CUresult add_checked(Call& call, CUlinkState handle, CUjitInputType type, Bytes bytes,
                     JitOptionList list) {
  auto* link = checked<Link>(call.rt.links, handle);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  JitOptions own;
  if (const CUresult bad = own.read(list, JitOptions::kLinkInput)) return bad;
  if (link->complete || type < 0 || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_JIT_INPUT_NVVM) return CUDA_ERROR_NOT_SUPPORTED;  // there is no compiler here
  if (!call.rt.contexts.count(link->context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const uint64_t begin_ns = call.rt.now_ns();
  const CUresult result = add_input(call.rt, link, type, bytes);
  link->work_ns += call.rt.now_ns() - begin_ns;
  link->report();
  return result;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                            CUlinkState* out) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  auto* link = new Link{call.context, {}, {}, 0, {}, {}, false, {}};
  if (const CUresult bad = link->options.read({count, options, values}, JitOptions::kLink)) {
    delete link;
    return bad;
  }
  call.rt.links.insert(link);
  *out = reinterpret_cast<CUlinkState>(link);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLinkCreate(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* out) {
  return cuLinkCreate_v2(count, options, values, out);
}

SOFTGPU_API cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                             const char*, unsigned int count, CUjit_option* options,
                             void** values) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!checked<Link>(call.rt.links, handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (!data || size == 0) return CUDA_ERROR_INVALID_VALUE;
  return add_checked(call, handle, type, {static_cast<const char*>(data), size},
                     {count, options, values});
}

SOFTGPU_API cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int count, CUjit_option* options,
                          void** values) {
  return cuLinkAddData_v2(handle, type, data, size, name, count, options, values);
}

SOFTGPU_API cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path,
                             unsigned int count, CUjit_option* options, void** values) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!checked<Link>(call.rt.links, handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  if (const CUresult bad = read_file(path, &bytes)) return bad;
  return add_checked(call, handle, type, {bytes.data(), bytes.size()}, {count, options, values});
}

SOFTGPU_API cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char* path,
                          unsigned int count, CUjit_option* options, void** values) {
  return cuLinkAddFile_v2(handle, type, path, count, options, values);
}

SOFTGPU_API cuLinkComplete(CUlinkState handle, void** cubin, size_t* size) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* link = checked<Link>(call.rt.links, handle);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  if (!cubin) return CUDA_ERROR_INVALID_VALUE;
  if (!call.rt.contexts.count(link->context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!link->complete) {
    const uint32_t arch = arch_of_device(call.rt, link->context->device);
    link->image = make_linked_image(link->inputs, arch);
    std::set<std::string> names;
    const Bytes image{link->image.data(), link->image.size()};
    if (const CUresult bad = try_image(call.rt, link, image, &names)) {
      link->report();
      return bad;
    }
    link->complete = true;
    if (link->options.verbose()) {
      link->log.info += std::to_string(link->names.size()) + " kernels from " +
                        std::to_string(link->inputs.size()) + " images\n";
    }
    link->report();
  }
  *cubin = link->image.data();
  if (size) *size = link->image.size();
  return CUDA_SUCCESS;
}

SOFTGPU_API cuLinkDestroy(CUlinkState handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* link = checked<Link>(call.rt.links, handle);
  if (!link) return CUDA_ERROR_INVALID_HANDLE;
  call.rt.links.erase(link);
  delete link;
  return CUDA_SUCCESS;
}
