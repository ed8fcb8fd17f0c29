// Programs load NVML by name and look it up by dlsym (pynvml, nvitop, gpustat), or link to it.
#include <atomic>
#include <cstring>

#include "nvml/nvml_api.h"
#include "old_glibc.h"
#include "precedence.h"
#include "real_dlsym.h"

namespace tandem::shim::nvml {
namespace {

Library g_library;
std::atomic<bool> g_known{false};  // release when g_library is filled, acquire before it is read

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(real_dlsym(handle, name));
}

struct Wrapper {
  const char* name;
  void* function;     // ours
  void* const* real;  // NVML's
};

// Built on demand: a constant table would need relocations for which every process of a job pays.
Wrapper wrapper_named(const char* name) {
#define CALL(symbol, parameters)                       \
  if (std::strcmp(name, #symbol) == 0)                 \
    return {#symbol, reinterpret_cast<void*>(&symbol), \
            reinterpret_cast<void* const*>(&g_library.symbol)};
  TANDEM_NVML_CALLS(CALL)
#undef CALL
  return {};
}

}  // namespace

// Two threads may run this at the same time: both write the same values.
const Library* library() {
  if (g_known.load(std::memory_order_acquire)) return &g_library;
  void* handle = old_glibc::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!handle) return nullptr;
#define CALL(name, parameters) find(handle, #name, g_library.name);
  TANDEM_NVML_CALLS(CALL)
  TANDEM_NVML_OWN_CALLS(CALL)
#undef CALL
  g_known.store(true, std::memory_order_release);
  return &g_library;
}

}  // namespace tandem::shim::nvml

// Answers dlsym for a name that begins with "nv", with any handle but RTLD_NEXT.
void* tandem_substitute_nvml(void* handle, const char* name) {
  using namespace tandem::shim;
  const nvml::Wrapper wrapper = nvml::wrapper_named(name);
  void* found = real_dlsym(handle, name);
  if (!wrapper.name || !found || comes_second()) return found;
  const bool is_nvmls = nvml::library() && *wrapper.real;
  if (found == wrapper.function) return is_nvmls ? found : not_found(name);
  return is_nvmls && found == *wrapper.real ? wrapper.function : found;
}
