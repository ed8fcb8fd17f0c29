// MIG: devices that are cut into GPU instances, each with one compute instance of its whole size.
// The layout is fixed while the device process runs.
#include <algorithm>
#include <cstdio>

#include "mig_profiles.h"
#include "nvml.h"

using namespace nvml;
using softgpu::DeviceFigures;
using tandem::softgpu::MigProfile;

namespace {

constexpr unsigned kMostProfiles = 32;  // numbers above are no profile of any product
constexpr size_t kMebibyte = 1024 * 1024;
// The handle of a GPU instance is its MIG device's with this bit.
constexpr size_t kInstanceBit = size_t{1} << 16;

struct Attributes {
  unsigned sm_count, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
  unsigned long long memory_mib;
};
struct Placement {
  unsigned start, size;
};
struct InstanceInfo {
  Handle device;
  unsigned id, profile;
  Placement placement;
};
struct ProfileInfo {
  unsigned id, p2p, slices, instances, sm_count, copy_engines, decoders, encoders, jpeg, ofa;
  unsigned long long memory_mib;
};
struct ProfileInfoV2 {
  unsigned version, id, p2p, slices, instances, sm_count, copy_engines, decoders, encoders, jpeg,
      ofa;
  unsigned long long memory_mib;
  char name[96];
};

// The profile of the device's product that `matches`; null when there is none.
template <class Matches>
const MigProfile* find_profile(const DeviceFigures& device, Matches matches) {
  const auto* table = tandem::softgpu::mig_table(device.profile);
  if (!table) return nullptr;
  for (const MigProfile& profile : table->profiles) {
    if (matches(profile)) return &profile;
  }
  return nullptr;
}
const MigProfile* profile_by_id(const DeviceFigures& device, unsigned id) {
  return find_profile(device, [&](const MigProfile& profile) { return profile.id == id; });
}

// A whole device whose MIG is on.
int mig_figures(Handle handle, DeviceFigures* device) {
  if (const int bad = figures_of(handle, device)) return bad;
  return device->instances.empty() ? kNotSupported : kSuccess;
}

// A MIG device.
int instance_figures(Handle handle, DeviceFigures* instance) {
  if (const int bad = figures_of_any(handle, instance)) return bad;
  return is_mig(handle) ? kSuccess : kInvalidArgument;
}

int describe(const DeviceFigures& device, const MigProfile& profile, ProfileInfo* info) {
  *info = {profile.id,       0,          profile.compute_slices,
           profile.most,     profile.sm_count, profile.copy_engines,
           profile.decoders, 0,          profile.jpeg,
           profile.ofa,      memory_share(profile, device.total_bytes) / kMebibyte};
  return kSuccess;
}

int profile_info(Handle handle, unsigned number, ProfileInfo* info, std::string* name) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!info || number >= kMostProfiles) return kInvalidArgument;
  const MigProfile* profile =
      find_profile(device, [&](const MigProfile& one) { return one.number == number; });
  if (!profile) return kNotSupported;
  *name = profile->name;
  return describe(device, *profile, info);
}

Handle instance_handle(size_t index, size_t place) {
  return reinterpret_cast<Handle>(reinterpret_cast<size_t>(mig_handle_of(index, place)) |
                                  kInstanceBit);
}

}  // namespace

NVML_API nvmlDeviceGetMigMode(Handle handle, unsigned* current, unsigned* pending) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (device.mig_slices == 0) return kNotSupported;
  if (!current || !pending) return kInvalidArgument;
  *current = *pending = device.instances.empty() ? 0 : 1;
  return kSuccess;
}

NVML_API nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned* count) {
  return put(handle, count, [](const DeviceFigures& device) { return device.mig_slices; });
}

NVML_API nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned index, Handle* out) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!out || index >= std::max(device.mig_slices, 1U)) return kInvalidArgument;
  if (device.mig_slices == 0) return kNotSupported;
  if (index >= device.instances.size()) return kNotFound;
  *out = mig_handle_of(index_of(handle), index);
  return kSuccess;
}

NVML_API nvmlDeviceIsMigDeviceHandle(Handle handle, unsigned* is_one) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device)) return bad;
  if (!is_one) return kInvalidArgument;
  *is_one = is_mig(handle);
  return kSuccess;
}

NVML_API nvmlDeviceGetGpuInstanceId(Handle handle, unsigned* id) {
  DeviceFigures instance;
  if (const int bad = instance_figures(handle, &instance)) return bad;
  if (!id) return kInvalidArgument;
  *id = instance.gpu_instance;
  return kSuccess;
}

NVML_API nvmlDeviceGetComputeInstanceId(Handle handle, unsigned* id) {
  DeviceFigures instance;
  if (const int bad = instance_figures(handle, &instance)) return bad;
  if (!id) return kInvalidArgument;
  *id = 0;  // its only one
  return kSuccess;
}

NVML_API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle handle, Handle* out) {
  DeviceFigures instance;
  if (const int bad = instance_figures(handle, &instance)) return bad;
  if (!out) return kInvalidArgument;
  *out = handle_of(index_of(handle));
  return kSuccess;
}

NVML_API nvmlDeviceGetAttributes_v2(Handle handle, Attributes* out) {
  DeviceFigures instance;
  if (const int bad = instance_figures(handle, &instance)) return bad;
  if (!out) return kInvalidArgument;
  const MigProfile* profile = profile_by_id(instance, instance.mig_profile);
  if (!profile) return kUnknown;
  *out = {instance.sm_count, profile->copy_engines, profile->decoders, 0, profile->jpeg,
          profile->ofa, profile->compute_slices, profile->compute_slices,
          instance.total_bytes / kMebibyte};
  return kSuccess;
}
NVML_API nvmlDeviceGetAttributes(Handle handle, Attributes* out) {
  return nvmlDeviceGetAttributes_v2(handle, out);
}

NVML_API nvmlDeviceGetGpuInstanceProfileInfo(Handle handle, unsigned number, ProfileInfo* info) {
  std::string name;
  return profile_info(handle, number, info, &name);
}

NVML_API nvmlDeviceGetGpuInstanceProfileInfoV(Handle handle, unsigned number,
                                              ProfileInfoV2* out) {
  ProfileInfo info{};
  std::string name;
  if (!out) return kInvalidArgument;
  if (out->version != version_of<ProfileInfoV2>(2)) return kVersionMismatch;
  if (const int bad = profile_info(handle, number, &info, &name)) return bad;
  *out = {out->version,      info.id,       info.p2p,      info.slices, info.instances,
          info.sm_count,     info.copy_engines, info.decoders, info.encoders, info.jpeg,
          info.ofa,          info.memory_mib, {}};
  snprintf(out->name, sizeof out->name, "MIG %s", name.c_str());
  return kSuccess;
}

// Without room for them only their number is told.
NVML_API nvmlDeviceGetGpuInstancePossiblePlacements_v2(Handle handle, unsigned id,
                                                       Placement* placements, unsigned* count) {
  DeviceFigures device;
  if (const int bad = mig_figures(handle, &device)) return bad;
  if (!count) return kInvalidArgument;
  const MigProfile* profile = profile_by_id(device, id);
  if (!profile) return kInvalidArgument;
  const unsigned room = *count;
  *count = profile->start_count;
  if (!placements) return kSuccess;
  if (room < *count) return kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i) placements[i] = {profile->starts[i], profile->memory_slices};
  return kSuccess;
}
NVML_API nvmlDeviceGetGpuInstancePossiblePlacements(Handle handle, unsigned id,
                                                    Placement* placements, unsigned* count) {
  return nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle, id, placements, count);
}

// `out` has room for as many as the profile allows on a device.
NVML_API nvmlDeviceGetGpuInstances(Handle handle, unsigned id, Handle* out, unsigned* count) {
  DeviceFigures device;
  if (const int bad = mig_figures(handle, &device)) return bad;
  if (!out || !count || !profile_by_id(device, id)) return kInvalidArgument;
  *count = 0;
  for (size_t i = 0; i < device.instances.size(); ++i) {
    if (device.instances[i].mig_profile != id) continue;
    out[(*count)++] = instance_handle(index_of(handle), i);
  }
  return kSuccess;
}

NVML_API nvmlDeviceGetGpuInstanceById(Handle handle, unsigned id, Handle* out) {
  DeviceFigures device;
  if (const int bad = mig_figures(handle, &device)) return bad;
  if (!out) return kInvalidArgument;
  for (size_t i = 0; i < device.instances.size(); ++i) {
    if (device.instances[i].gpu_instance != id) continue;
    *out = instance_handle(index_of(handle), i);
    return kSuccess;
  }
  return kNotFound;
}

NVML_API nvmlGpuInstanceGetInfo(Handle handle, InstanceInfo* out) {
  const auto bits = reinterpret_cast<size_t>(handle);
  const Handle mig = reinterpret_cast<Handle>(bits & ~kInstanceBit);
  DeviceFigures instance;
  if (!initialised()) return kUninitialized;
  if (!(bits & kInstanceBit)) return kInvalidArgument;
  if (const int bad = instance_figures(mig, &instance)) return bad;
  const MigProfile* profile = profile_by_id(instance, instance.mig_profile);
  if (!profile) return kUnknown;
  if (!out) return kInvalidArgument;
  *out = {handle_of(index_of(mig)), instance.gpu_instance, instance.mig_profile,
          {instance.mig_start, profile->memory_slices}};
  return kSuccess;
}
