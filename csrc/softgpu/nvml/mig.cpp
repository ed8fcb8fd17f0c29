// MIG: devices partitioned into GPU instances, each with one compute instance of its full size.
// Root and the owner of the device process may repartition a device.
#include <algorithm>
#include <array>
#include <cstdio>

#include "mig_profiles.h"
#include "nvml.h"

using namespace nvml;
using softgpu::DeviceFigures;
using tandem::softgpu::MigProfile;
using tandem::softgpu::MigVerb;

namespace {

constexpr unsigned kMostProfiles = 32;  // above the profile numbers of all products
constexpr size_t kMebibyte = 1024 * 1024;
// Handles of a GPU instance and of its compute instance hold its number, since places can change.
constexpr size_t kInstanceBit = size_t{1} << 16, kComputeBit = size_t{1} << 17;

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
struct ComputeInfo {
  Handle device, instance;
  unsigned id, profile;
  Placement placement;
};
struct ProfileInfo {
  unsigned id, p2p, slices, instances, sm_count, copy_engines, decoders, encoders, jpeg, ofa;
  unsigned long long memory_mib;
};
struct ComputeProfileInfo {
  unsigned id, slices, instances, sm_count, copy_engines, decoders, encoders, jpeg, ofa;
};
// Slices by NVML_COMPUTE_INSTANCE_PROFILE_*.
constexpr std::array<unsigned, 7> kSlicesOf = {1, 2, 3, 4, 7, 8, 6};
struct ProfileInfoV2 {
  unsigned version, id, p2p, slices, instances, sm_count, copy_engines, decoders, encoders, jpeg,
      ofa;
  unsigned long long memory_mib;
  char name[96];
};

// The profile of the device's product that `matches`; null if there is none.
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

// The figures of a whole device on which MIG is enabled.
int mig_figures(Handle handle, DeviceFigures* device) {
  if (const int bad = figures_of(handle, device)) return bad;
  return device->has_mig_on ? kSuccess : kNotSupported;
}

// The figures of a MIG device.
int instance_figures(Handle handle, DeviceFigures* instance) {
  if (const int bad = figures_of_any(handle, instance)) return bad;
  return is_mig(handle) ? kSuccess : kInvalidArgument;
}

int describe(const DeviceFigures& device, const MigProfile& profile, ProfileInfo* info) {
  *info = {profile.id,
           0,
           profile.compute_slices,
           profile.most,
           profile.sm_count,
           profile.copy_engines,
           profile.decoders,
           0,
           profile.jpeg,
           profile.ofa,
           memory_share(profile, device.total_bytes) / kMebibyte};
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

Handle instance_handle(size_t index, size_t number, size_t bit = kInstanceBit) {
  return reinterpret_cast<Handle>(reinterpret_cast<size_t>(mig_handle_of(index, number)) | bit);
}

// Finds the GPU instance that a handle with this bit names, and the index of its device.
int named_instance(Handle handle, size_t bit, size_t* index, DeviceFigures* instance) {
  const auto bits = reinterpret_cast<size_t>(handle);
  if (!initialised()) return kUninitialized;
  if (!(bits & bit)) return kInvalidArgument;
  const auto mig = reinterpret_cast<Handle>(bits & ~bit);
  DeviceFigures device;
  *index = index_of(mig);
  if (const int bad = mig_figures(handle_of(*index), &device)) return bad;
  for (DeviceFigures& one : device.instances) {
    if (one.gpu_instance != place_of(mig)) continue;
    *instance = std::move(one);
    return kSuccess;
  }
  return kInvalidArgument;
}

int status_of(tandem::softgpu::MigStatus status) {
  using tandem::softgpu::MigStatus;
  switch (status) {
    case MigStatus::kDone: return kSuccess;
    case MigStatus::kNoMig: return kNotSupported;
    case MigStatus::kInUse: return kInUse;
    case MigStatus::kNoRoom: return kInsufficientResources;
    case MigStatus::kNotFound: return kNotFound;
    case MigStatus::kNotPermitted: return kNoPermission;
  }
  return kUnknown;
}

int change(size_t index, MigVerb verb, unsigned value, unsigned start, unsigned* created) {
  tandem::softgpu::MigChange message{};
  tandem::softgpu::MigReply reply{};
  message.device = static_cast<uint32_t>(index);
  message.verb = static_cast<uint32_t>(verb);
  message.value = value;
  message.start = start;
  if (!softgpu::change_mig(message, &reply)) return kUnknown;
  if (created) *created = reply.gpu_instance;
  return status_of(static_cast<tandem::softgpu::MigStatus>(reply.status));
}

int create_instance(Handle handle, unsigned profile, unsigned start, Handle* out) {
  DeviceFigures device;
  unsigned number = 0;
  if (const int bad = mig_figures(handle, &device)) return bad;
  if (!out || !profile_by_id(device, profile)) return kInvalidArgument;
  const int bad = change(index_of(handle), MigVerb::kCreate, profile, start, &number);
  if (!bad) *out = instance_handle(index_of(handle), number);
  return bad;
}

}  // namespace

NVML_API nvmlDeviceGetMigMode(Handle handle, unsigned* current, unsigned* pending) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (device.mig_slices == 0) return kNotSupported;
  if (!current || !pending) return kInvalidArgument;
  *current = *pending = device.has_mig_on;
  return kSuccess;
}

NVML_API nvmlDeviceSetMigMode(Handle handle, unsigned mode, int* activation) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (mode > 1 || !activation) return kInvalidArgument;
  *activation = change(index_of(handle), MigVerb::kSetMode, mode, 0, nullptr);
  return *activation;
}

NVML_API nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned* count) {
  return put(handle, count, [](const DeviceFigures& device) { return device.mig_slices; });
}

NVML_API nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned index, Handle* out) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!out || index >= std::max(device.mig_slices, 1U)) return kInvalidArgument;
  if (device.mig_slices == 0) return kNotSupported;
  for (size_t place = 0; place < device.instances.size(); ++place) {
    if (!device.instances[place].is_usable || index-- > 0) continue;
    *out = mig_handle_of(index_of(handle), place);
    return kSuccess;
  }
  return kNotFound;
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
  *out = {instance.sm_count,
          profile->copy_engines,
          profile->decoders,
          0,
          profile->jpeg,
          profile->ofa,
          profile->compute_slices,
          profile->compute_slices,
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

NVML_API nvmlDeviceGetGpuInstanceProfileInfoV(Handle handle, unsigned number, ProfileInfoV2* out) {
  ProfileInfo info{};
  std::string name;
  if (!initialised()) return kUninitialized;
  if (!out) return kInvalidArgument;
  if (out->version != version_of<ProfileInfoV2>(2)) return kVersionMismatch;
  if (const int bad = profile_info(handle, number, &info, &name)) return bad;
  *out = {out->version,
          info.id,
          info.p2p,
          info.slices,
          info.instances,
          info.sm_count,
          info.copy_engines,
          info.decoders,
          info.encoders,
          info.jpeg,
          info.ofa,
          info.memory_mib,
          {}};
  snprintf(out->name, sizeof out->name, "MIG %s", name.c_str());
  return kSuccess;
}

// Works with MIG off, too. A null `placements` only asks for their number.
NVML_API nvmlDeviceGetGpuInstancePossiblePlacements_v2(Handle handle, unsigned id,
                                                       Placement* placements, unsigned* count) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (device.mig_slices == 0) return kNotSupported;
  if (!count) return kInvalidArgument;
  const MigProfile* profile = profile_by_id(device, id);
  if (!profile) return kInvalidArgument;
  const unsigned room = *count;
  *count = profile->start_count;
  if (!placements) return kSuccess;
  if (room < *count) return kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i)
    placements[i] = {profile->starts[i], profile->memory_slices};
  return kSuccess;
}
NVML_API nvmlDeviceGetGpuInstancePossiblePlacements(Handle handle, unsigned id,
                                                    Placement* placements, unsigned* count) {
  return nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle, id, placements, count);
}

// The caller provides room in `out` for as many as the profile allows on a device.
NVML_API nvmlDeviceGetGpuInstances(Handle handle, unsigned id, Handle* out, unsigned* count) {
  DeviceFigures device;
  if (const int bad = mig_figures(handle, &device)) return bad;
  if (!out || !count || !profile_by_id(device, id)) return kInvalidArgument;
  *count = 0;
  for (size_t i = 0; i < device.instances.size(); ++i) {
    if (device.instances[i].mig_profile != id) continue;
    out[(*count)++] = instance_handle(index_of(handle), device.instances[i].gpu_instance);
  }
  return kSuccess;
}

NVML_API nvmlDeviceGetGpuInstanceById(Handle handle, unsigned id, Handle* out) {
  DeviceFigures device;
  if (const int bad = mig_figures(handle, &device)) return bad;
  if (!out) return kInvalidArgument;
  for (size_t i = 0; i < device.instances.size(); ++i) {
    if (device.instances[i].gpu_instance != id) continue;
    *out = instance_handle(index_of(handle), id);
    return kSuccess;
  }
  return kNotFound;
}

NVML_API nvmlGpuInstanceGetInfo(Handle handle, InstanceInfo* out) {
  size_t index = 0;
  DeviceFigures instance;
  if (const int bad = named_instance(handle, kInstanceBit, &index, &instance)) return bad;
  const MigProfile* profile = profile_by_id(instance, instance.mig_profile);
  if (!profile) return kUnknown;
  if (!out) return kInvalidArgument;
  *out = {handle_of(index),
          instance.gpu_instance,
          instance.mig_profile,
          {instance.mig_start, profile->memory_slices}};
  return kSuccess;
}

NVML_API nvmlDeviceCreateGpuInstance(Handle handle, unsigned profile, Handle* out) {
  return create_instance(handle, profile, tandem::softgpu::kNone32, out);
}
NVML_API nvmlDeviceCreateGpuInstanceWithPlacement(Handle handle, unsigned profile,
                                                  const Placement* placement, Handle* out) {
  DeviceFigures device;
  if (const int bad = mig_figures(handle, &device)) return bad;
  const MigProfile* wanted = profile_by_id(device, profile);
  if (!placement || !wanted || placement->size != wanted->memory_slices) return kInvalidArgument;
  return create_instance(handle, profile, placement->start, out);
}

NVML_API nvmlGpuInstanceDestroy(Handle handle) {
  size_t index = 0;
  DeviceFigures instance;
  if (const int bad = named_instance(handle, kInstanceBit, &index, &instance)) return bad;
  return change(index, MigVerb::kDestroy, instance.gpu_instance, 0, nullptr);
}

// The only compute instance profile is the one with as many slices as the GPU instance.
NVML_API nvmlGpuInstanceGetComputeInstanceProfileInfo(Handle handle, unsigned number,
                                                      unsigned engines, ComputeProfileInfo* out) {
  size_t index = 0;
  DeviceFigures instance;
  if (const int bad = named_instance(handle, kInstanceBit, &index, &instance)) return bad;
  if (!out || number >= kMostProfiles || engines != 0) return kInvalidArgument;
  const MigProfile* profile = profile_by_id(instance, instance.mig_profile);
  if (!profile) return kUnknown;
  if (number >= kSlicesOf.size() || kSlicesOf[number] != profile->compute_slices) {
    return kNotSupported;
  }
  *out = {number,
          profile->compute_slices,
          1,
          profile->sm_count,
          profile->copy_engines,
          profile->decoders,
          0,
          profile->jpeg,
          profile->ofa};
  return kSuccess;
}

NVML_API nvmlGpuInstanceCreateComputeInstance(Handle handle, unsigned profile, Handle* out) {
  size_t index = 0;
  DeviceFigures instance;
  ComputeProfileInfo info;
  if (const int bad = nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, profile, 0, &info)) {
    return bad;
  }
  if (!out) return kInvalidArgument;
  if (const int bad = named_instance(handle, kInstanceBit, &index, &instance)) return bad;
  *out = instance_handle(index, instance.gpu_instance, kComputeBit);
  return change(index, MigVerb::kCreateCompute, instance.gpu_instance, 0, nullptr);
}

// The caller provides room in `out` for as many as the profile allows in a GPU instance.
NVML_API nvmlGpuInstanceGetComputeInstances(Handle handle, unsigned profile, Handle* out,
                                            unsigned* count) {
  size_t index = 0;
  DeviceFigures instance;
  ComputeProfileInfo info;
  if (const int bad = nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, profile, 0, &info)) {
    return bad;
  }
  if (!out || !count) return kInvalidArgument;
  if (const int bad = named_instance(handle, kInstanceBit, &index, &instance)) return bad;
  *count = instance.is_usable;
  if (instance.is_usable) *out = instance_handle(index, instance.gpu_instance, kComputeBit);
  return kSuccess;
}

NVML_API nvmlComputeInstanceGetInfo_v2(Handle handle, ComputeInfo* out) {
  size_t index = 0;
  DeviceFigures instance;
  if (const int bad = named_instance(handle, kComputeBit, &index, &instance)) return bad;
  const MigProfile* profile = profile_by_id(instance, instance.mig_profile);
  if (!profile || !instance.is_usable) return kUnknown;
  if (!out) return kInvalidArgument;
  const unsigned slices = profile->compute_slices;
  const auto* const number = std::find(kSlicesOf.begin(), kSlicesOf.end(), slices);
  *out = {handle_of(index),
          instance_handle(index, instance.gpu_instance),
          0,
          static_cast<unsigned>(number - kSlicesOf.begin()),
          {0, slices}};
  return kSuccess;
}

NVML_API nvmlComputeInstanceDestroy(Handle handle) {
  size_t index = 0;
  DeviceFigures instance;
  if (const int bad = named_instance(handle, kComputeBit, &index, &instance)) return bad;
  return change(index, MigVerb::kDestroyCompute, instance.gpu_instance, 0, nullptr);
}
