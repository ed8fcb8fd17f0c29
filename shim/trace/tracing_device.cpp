#include "tracing_device.h"

#include <cuda.h>

#include "driver.h"

namespace tandem::shim::tracing {
namespace {

// 0: the driver does not say.
uint64_t attribute(CUdevice_attribute which, CUdevice device) {
  int value = 0;
  const bool is_known = g_driver.cuDeviceGetAttribute &&
                        g_driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS;
  return is_known && value > 0 ? static_cast<uint64_t>(value) : 0;
}

// Memory transfers data at both edges of its clock (CUDA Driver API, cuDeviceGetAttribute: peak
// clock in kHz and bus width in bits).
uint64_t bytes_per_s(CUdevice device) {
  return 2 * 1000 * attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device) *
         attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device) / 8;
}

}  // namespace

uint32_t ToldDevices::describe(uint64_t* words) {
  CUdevice device = 0;
  if (!g_driver.cuCtxGetDevice || g_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return 0;
  if (device < 0 || device >= 64 || told_ >> device & 1) return 0;
  told_ |= uint64_t{1} << device;
  words[0] = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  words[1] = bytes_per_s(device);
  return words[0] ? kDeviceWords : 0;
}

}  // namespace tandem::shim::tracing
