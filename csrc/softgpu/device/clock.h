// The only reader of real time in the device process.
#pragma once

#include <cstdint>
#include <ctime>

namespace tandem::softgpu {

inline uint64_t real_now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace tandem::softgpu
