// What traces say of the devices that calls are made on.
#pragma once

#include <cstdint>

namespace tandem::shim::tracing {

inline constexpr uint32_t kDeviceWords = 2;  // multiprocessors; memory bandwidth in bytes/s, 0 = not known

// Of one thread, which tells of each device once.
class ToldDevices {
 public:
  // The words of the device of the current context; how many there are: 0 where it was told of before
  // or the driver does not say.
  uint32_t describe(uint64_t* words);

 private:
  uint64_t told_ = 0;  // a bit a device; those from 64 on are not told of
};

}  // namespace tandem::shim::tracing
