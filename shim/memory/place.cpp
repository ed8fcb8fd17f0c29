#include "place.h"

#include <atomic>

#include "driver.h"
#include "holdings.h"
#include "observe.h"

namespace tandem::shim {
namespace {

std::atomic<uint32_t> g_generation{1};
std::atomic<int> g_device_count{0};  // 0: not queried yet

struct Remembered {
  uint64_t context;
  uint32_t device;
  uint32_t generation;  // of g_generation when queried; 0: nothing yet
};
__thread Remembered t_place __attribute__((tls_model("initial-exec")));

int device_count() {
  int count = g_device_count.load(std::memory_order_relaxed);
  if (count == 0 && g_driver.cuDeviceGetCount && g_driver.cuDeviceGetCount(&count) == CUDA_SUCCESS)
    g_device_count.store(count, std::memory_order_relaxed);
  return count;
}

}  // namespace

Place place_now() {
  CUcontext context = nullptr;
  if (!g_driver.cuCtxGetCurrent || g_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
    return {};
  const auto handle = reinterpret_cast<uint64_t>(context);
  const uint32_t generation = g_generation.load(std::memory_order_relaxed);
  if (t_place.context != handle || t_place.generation != generation) {
    CUdevice device = 0;
    if (g_driver.cuCtxGetDevice) g_driver.cuCtxGetDevice(&device);
    t_place = {handle, static_cast<uint32_t>(device), generation};
  }
  return {handle, t_place.device};
}

uint32_t device_of(CUstream stream) {
  if (device_count() == 1) return 0;
  const bool is_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  CUdevice device = 0;
  if (!is_default && g_driver.cuStreamGetDevice &&
      g_driver.cuStreamGetDevice(stream, &device) == CUDA_SUCCESS) {
    return static_cast<uint32_t>(device);
  }
  return place_now().device;
}

void note_context(CUcontext context, CUdevice device) {
  holdings::Entry entry;
  entry.kind = holdings::Kind::kContext;
  entry.key = reinterpret_cast<uint64_t>(context);
  entry.device = static_cast<uint8_t>(device);
  holdings::put(entry);
}

bool has_contexts(uint32_t device) {
  if (primary_is_active(static_cast<CUdevice>(device))) return true;
  bool found = false;
  const holdings::Locked table;
  table->for_each([&](const holdings::Entry& entry) {
    found |= entry.kind == holdings::Kind::kContext && entry.device == device;
  });
  return found;
}

void forget_places() { g_generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace tandem::shim
