// What the device process reports for NVML, parsed from its JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../protocol.h"

namespace softgpu {

struct ProcessFigures {
  uint32_t pid;
  uint32_t gpu_instance;  // 0: none
  uint64_t used_bytes;
  double compute_ratio;
};
struct DeviceFigures {
  std::string name, uuid;
  uint32_t clock_mhz, major, minor, sm_count;
  uint64_t total_bytes, used_bytes;
  double gpu_ratio, memory_ratio;
  uint32_t memory_clock_mhz, memory_bus_bits, power_limit_w, idle_w, pcie_generation, mig_slices;
  uint64_t now_ns, uptime_ns, compute_busy_ns, ecc_corrected, ecc_uncorrectable;
  double copy_to_ratio, copy_from_ratio, copy_bytes_per_s;
  bool has_ecc, lost, has_mig_on;
  bool is_usable;  // of an instance: its compute instance exists
  std::vector<ProcessFigures> processes;
  std::string profile;                   // h200, ...
  uint32_t gpu_instance;                 // 0: a whole device
  uint32_t mig_profile, mig_start;       // of an instance: its profile and first memory slice
  std::vector<DeviceFigures> instances;  // of a device with MIG
};

// Returns false if there is no device process and none can be started.
bool read_figures(std::vector<DeviceFigures>* devices);

// Returns false in the same case; the reply tells the outcome of the change.
bool change_mig(const tandem::softgpu::MigChange& change, tandem::softgpu::MigReply* reply);

}  // namespace softgpu
