// What traces say about the devices on which calls are made.
#pragma once

#include <cstdint>

namespace tandem::shim::tracing {

// Multiprocessors; memory bandwidth in bytes/s, 0 = not known.
inline constexpr uint32_t kDeviceWords = 2;

// Belongs to one thread, which describes each device once.
class ToldDevices {
 public:
  // Stores the words that describe the device of the current context and returns how many there
  // are: 0 if the device was described before or the driver does not say.
  uint32_t describe(uint64_t* words);

 private:
  uint64_t told_ = 0;  // one bit per device; devices from 64 on are not described
};

}  // namespace tandem::shim::tracing
