#include "transfers.h"

#include "driver.h"
#include "relaxed.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kStartNs = 2'000;

// 1 TB/s within a device, 50 GB/s between two, 20 GB/s to and from the host.
constexpr uint64_t ns_per_kib(Direction direction) {
  if (direction == Direction::kWithin) return 1;
  return direction == Direction::kBetween ? 20 : 50;
}

// Uses the plural form, which recognises host memory that was never registered. For the other form
// that is an error, and errors show up in the logs that a job can ask the driver for.
bool is_device_memory(uint64_t address) {
  unsigned type = 0;
  CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* to = &type;
  return g_driver.cuPointerGetAttributes(1, &wanted, &to, address) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

}  // namespace

uint64_t transfer_estimate_ns(uint64_t bytes, Direction direction) {
  return kStartNs + (bytes >> 10) * ns_per_kib(direction);
}

Direction direction_between(uint64_t destination, uint64_t source) {
  if (!g_driver.cuPointerGetAttributes) return Direction::kUnknown;
  const RelaxedCapture relaxed;
  const bool to_device = is_device_memory(destination);
  const bool from_device = is_device_memory(source);
  if (to_device && from_device) return Direction::kWithin;
  if (to_device) return Direction::kToDevice;
  return from_device ? Direction::kFromDevice : Direction::kUnknown;
}

}  // namespace tandem::shim
