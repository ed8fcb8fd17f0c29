// The modelled GPUs, one table row per profile. Figures are each product's public peak values.
// `tiny` and `mini` are made-up devices, slow enough for one CPU core to really execute what they
// model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "protocol.h"

namespace tandem::softgpu {

struct Profile {
  const char* name;
  uint32_t sm_count, clock_mhz, compute_major, compute_minor;
  uint32_t max_threads_per_sm, max_blocks_per_sm, l2_bytes;
  uint64_t memory_bytes;
  double flops_per_s, bytes_per_s, copy_bytes_per_s;
  uint64_t context_bytes;  // device memory one context occupies
  uint32_t memory_clock_mhz, memory_bus_bits;
  uint32_t power_limit_w, idle_w;
  uint32_t pcie_generation;
  bool has_ecc;
  uint32_t mig_slices;  // number of compute slices, hence of instances at most; 0: no MIG
};

// The profile with that name, nullptr if there is none.
const Profile* find_profile(std::string_view name);

// All names, for messages: "h200, a100, rtx4090, tiny, mini".
std::vector<std::string_view> profile_words();
std::string profile_names();

// What a client is told about device `index`.
DeviceInfo device_info(const Profile& profile, uint32_t index);

}  // namespace tandem::softgpu
