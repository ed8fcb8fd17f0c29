#include "driver.h"

#include "faults.h"
#include "old_glibc.h"
#include "precedence.h"
#include "real_dlsym.h"
#include "tracing.h"

namespace tandem::shim {

Driver g_driver;

namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(real_dlsym(library, name));
}

}  // namespace

// Two threads may run this at the same time: both write the same values.
bool resolve_driver() {
  if (g_way.load(std::memory_order_acquire) != Way::kUnknown) return true;
  if (is_page_kept()) {  // the parent had looked the driver up
    g_way.store(Way::kPlain, std::memory_order_release);
    return true;
  }
  // RTLD_NOLOAD: only a library that is already loaded. The handle is kept for good, so that the
  // functions stay where they are.
  void* library = old_glibc::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
#define CALL(name) find(library, #name, g_driver.name);
#include "shim_calls.inc"
#undef CALL
#define OWN_CALL(name) find(library, #name, g_driver.name);
#include "own_calls.def"
#undef OWN_CALL
  find(library, "softgpu_now_ns", g_driver.softgpu_now_ns);
  find(library, "softgpu_clock_is_virtual", g_driver.softgpu_clock_is_virtual);
  find(library, "softgpu_wait_for_change", g_driver.softgpu_wait_for_change);
  find(library, "softgpu_wait_begin", g_driver.softgpu_wait_begin);
  find(library, "softgpu_wait_end", g_driver.softgpu_wait_end);
  if (comes_second()) {
    g_way.store(Way::kPlain, std::memory_order_release);
    return true;
  }
  plant_in_driver();
  // Pairs with the acquire in driver() and the entries.
  g_way.store(tracing::start() ? Way::kTraced : Way::kFast, std::memory_order_release);
  return true;
}

void resume_in_child() {
  g_way.store(tracing::is_on() ? Way::kTraced : Way::kFast, std::memory_order_release);
}

}  // namespace tandem::shim
