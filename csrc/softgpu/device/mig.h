// How devices are partitioned into GPU instances: TANDEM_SOFTGPU_MIG="1g.18gb,3g.71gb;;7g.141gb".
// Devices are separated by ';', in order; a device whose part is empty or missing has MIG off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mig_profiles.h"
#include "profile.h"

namespace tandem::softgpu {

struct MigInstance {
  const MigProfile* profile;
  uint32_t start;       // its first memory slice
  uint32_t number = 0;  // from 1, unique on its device
  // Whether it has its one compute instance; without it, it cannot be used.
  bool has_compute = true;
};
using MigLayout = std::vector<std::vector<MigInstance>>;  // by device

// Returns the error, empty if there is none. Instances keep the order in which they are written.
[[nodiscard]] std::string read_mig_layout(std::string_view text, const Profile& device,
                                          uint32_t device_count, MigLayout* layout);

// Places one more instance on a device, at `start` or, if that is kNone32, at the first free place.
// The others stay where they are. Returns false if it does not fit.
bool add_mig_instance(const MigProfile& profile, uint32_t start,
                      std::vector<MigInstance>* instances);

// All GPUs that contexts can be created on: whole devices, and the instances of those with MIG on.
std::vector<DeviceInfo> gpus_of(const Profile& profile, uint32_t device_count,
                                const MigLayout& layout);

}  // namespace tandem::softgpu
