// GPU instance profiles of MIG: the tables of NVIDIA's MIG user guide, with the SM counts that
// `nvidia-smi mig -lgip` prints and NVML's placements. Shared by the device process and NVML.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem::softgpu {

inline constexpr uint32_t kMigMemorySlices = 8;
inline constexpr uint32_t kMaxMigInstances = 7;  // per device

struct MigProfile {
  const char* name;
  uint32_t id;      // as nvidia-smi lists it
  uint32_t number;  // NVML_GPU_INSTANCE_PROFILE_*
  uint32_t compute_slices, memory_slices, sm_count, copy_engines;
  uint32_t most;  // maximum number of instances of this profile on one device
  uint32_t jpeg, decoders, ofa;
  uint32_t start_count;
  std::array<uint32_t, kMaxMigInstances> starts;  // memory slices where an instance may begin
};

struct MigTable {
  const char* gpu;  // name of the device profile
  std::array<MigProfile, 7> profiles;
};

inline constexpr MigTable kMigTables[] = {
    {"h200",
     {{
         {"1g.18gb", 19, 0, 1, 1, 16, 1, 7, 1, 1, 0, 7, {0, 1, 2, 3, 4, 5, 6}},
         {"1g.18gb+me", 20, 7, 1, 1, 16, 1, 1, 1, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
         {"1g.35gb", 15, 9, 1, 2, 26, 1, 4, 1, 1, 0, 4, {0, 2, 4, 6}},
         {"2g.35gb", 14, 1, 2, 2, 32, 2, 3, 2, 2, 0, 3, {0, 2, 4}},
         {"3g.71gb", 9, 2, 3, 4, 60, 3, 2, 3, 3, 0, 2, {0, 4}},
         {"4g.71gb", 5, 3, 4, 4, 64, 4, 1, 4, 4, 0, 1, {0}},
         {"7g.141gb", 0, 4, 7, 8, 132, 8, 1, 7, 7, 1, 1, {0}},
     }}},
    {"a100",
     {{
         {"1g.10gb", 19, 0, 1, 1, 14, 1, 7, 0, 0, 0, 7, {0, 1, 2, 3, 4, 5, 6}},
         {"1g.10gb+me", 20, 7, 1, 1, 14, 1, 1, 1, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
         {"1g.20gb", 15, 9, 1, 2, 14, 1, 4, 0, 1, 0, 4, {0, 2, 4, 6}},
         {"2g.20gb", 14, 1, 2, 2, 28, 2, 3, 0, 1, 0, 3, {0, 2, 4}},
         {"3g.40gb", 9, 2, 3, 4, 42, 3, 2, 0, 2, 0, 2, {0, 4}},
         {"4g.40gb", 5, 3, 4, 4, 56, 4, 1, 0, 2, 0, 1, {0}},
         {"7g.80gb", 0, 4, 7, 8, 98, 7, 1, 1, 5, 1, 1, {0}},
     }}},
};

// The table of a device profile; null if that product has no MIG.
inline const MigTable* mig_table(std::string_view gpu) {
  for (const MigTable& table : kMigTables) {
    if (gpu == table.gpu) return &table;
  }
  return nullptr;
}

inline const MigProfile* find_mig_profile(const MigTable& table, std::string_view name) {
  for (const MigProfile& profile : table.profiles) {
    if (name == profile.name) return &profile;
  }
  return nullptr;
}

// The profile's share of the whole device's memory, bandwidth or cache.
template <typename Amount>
Amount memory_share(const MigProfile& profile, Amount whole) {
  return whole * static_cast<Amount>(profile.memory_slices) / static_cast<Amount>(kMigMemorySlices);
}

}  // namespace tandem::softgpu
