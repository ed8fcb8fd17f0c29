// Which GPU instances the devices are cut into: TANDEM_SOFTGPU_MIG="1g.18gb,3g.71gb;;7g.141gb".
// Devices are separated by ';', in order; one whose part is empty or missing has MIG off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mig_profiles.h"
#include "profile.h"

namespace tandem::softgpu {

struct MigInstance {
  const MigProfile* profile;
  uint32_t start;  // its first memory slice
  uint32_t number = 0;  // from 1, unlike that of any other of the device
  bool has_compute = true;  // its one compute instance; without nothing can be on it
};
using MigLayout = std::vector<std::vector<MigInstance>>;  // by device

// The error, empty when there is none. Instances keep the order they are written in.
[[nodiscard]] std::string read_mig_layout(std::string_view text, const Profile& device,
                                          uint32_t device_count, MigLayout* layout);

// Finds a place for one more of a device, at `start` or, if that is kNone32, at the first that is
// free. The others stay where they are. False: it does not fit.
bool add_mig_instance(const MigProfile& profile, uint32_t start, std::vector<MigInstance>* instances);

// What contexts can be on: whole devices, and for those with MIG their instances.
std::vector<DeviceInfo> gpus_of(const Profile& profile, uint32_t device_count,
                                const MigLayout& layout);

}  // namespace tandem::softgpu
