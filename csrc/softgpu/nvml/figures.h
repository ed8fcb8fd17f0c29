// What the device process says for NVML, read out of its JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace softgpu {

struct ProcessFigures {
  uint32_t pid;
  uint64_t used_bytes;
};
struct DeviceFigures {
  std::string name, uuid;
  uint32_t clock_mhz, major, minor, sm_count;
  uint64_t total_bytes, used_bytes;
  double gpu_ratio, memory_ratio;
  std::vector<ProcessFigures> processes;
};

// False when there is no device process and none can be started.
bool read_figures(std::vector<DeviceFigures>* devices);

}  // namespace softgpu
