#include "mig.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "nearest.h"
#include "protocol.h"

namespace tandem::softgpu {
namespace {

// Splits `text`; there is always one part more than there are separators.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string mig_names(const MigTable& table) {
  std::string names;
  for (const MigProfile& profile : table.profiles) {
    names += (names.empty() ? "" : ", ") + std::string(profile.name);
  }
  return names;
}

std::string no_profile(std::string_view name, const Profile& device, const MigTable& table) {
  std::vector<std::string_view> words;
  for (const MigProfile& profile : table.profiles) words.emplace_back(profile.name);
  return "'" + std::string(name) + "' is not a MIG profile of " + device.name +
         ", must be one of " + mig_names(table) + did_you_mean(name, words);
}

uint32_t slices_of(const MigProfile& profile, uint32_t start) {
  return ((1U << profile.memory_slices) - 1) << start;
}

// Finds places for all instances from `next` on, outside the slices in `taken`.
bool place(std::vector<MigInstance>* instances, size_t next, uint32_t taken) {
  if (next == instances->size()) return true;
  MigInstance& instance = (*instances)[next];
  const MigProfile& profile = *instance.profile;
  for (uint32_t i = 0; i < profile.start_count; ++i) {
    const uint32_t slices = slices_of(profile, profile.starts[i]);
    if (taken & slices) continue;
    instance.start = profile.starts[i];
    if (place(instances, next + 1, taken | slices)) return true;
  }
  return false;
}

std::string read_device(std::string_view text, const Profile& device, const MigTable& table,
                        std::vector<MigInstance>* instances) {
  if (text.empty()) return {};
  for (const std::string_view name : split(text, ',')) {
    const MigProfile* profile = find_mig_profile(table, name);
    if (!profile) return no_profile(name, device, table);
    instances->push_back({profile, 0, static_cast<uint32_t>(instances->size()) + 1});
    const auto same = [&](const MigInstance& other) { return other.profile == profile; };
    if (std::count_if(instances->begin(), instances->end(), same) > profile->most) {
      return "'" + std::string(text) + "' has too many " + profile->name + ": at most " +
             std::to_string(profile->most) + " fit on a device";
    }
  }
  // More than seven cannot fit, and the search for places would take long.
  if (instances->size() <= kMaxMigInstances && place(instances, 0, 0)) return {};
  std::string sizes;
  for (const MigProfile& profile : table.profiles) {
    sizes += (sizes.empty() ? "" : ", ") + std::string(profile.name) + " takes " +
             std::to_string(profile.memory_slices);
  }
  return "'" + std::string(text) + "' does not fit on a device: of its " +
         std::to_string(device.mig_slices) + " compute and " + std::to_string(kMigMemorySlices) +
         " memory slices (" + sizes + " of memory)";
}

DeviceInfo instance_info(const Profile& device, uint32_t index, const MigInstance& instance) {
  const MigProfile& profile = *instance.profile;
  DeviceInfo info = device_info(device, index);
  std::snprintf(info.name, sizeof info.name, "Tandem Software GPU (%s) MIG %s", device.name,
                profile.name);
  std::memcpy(info.uuid, "TandemSoftMIG", 13);
  info.uuid[13] = static_cast<uint8_t>(device.name[0]);
  info.uuid[14] = static_cast<uint8_t>(index);
  info.uuid[15] = static_cast<uint8_t>(instance.number);
  const double compute_share = static_cast<double>(profile.sm_count) / info.sm_count;
  info.gpu_instance = instance.number;
  info.has_mig_on = 1;
  info.is_usable = instance.has_compute;
  info.mig_profile_id = profile.id;
  info.mig_start = instance.start;
  info.sm_count = profile.sm_count;
  info.flops_per_s *= compute_share;
  info.l2_bytes = memory_share(profile, info.l2_bytes / 1024) * 1024;
  info.memory_bytes = memory_share(profile, info.memory_bytes);
  info.bytes_per_s = memory_share(profile, info.bytes_per_s);
  info.copy_bytes_per_s = memory_share(profile, info.copy_bytes_per_s);
  return info;
}

}  // namespace

std::string read_mig_layout(std::string_view text, const Profile& device, uint32_t device_count,
                            MigLayout* layout) {
  layout->clear();
  if (text.empty()) return {};
  const MigTable* table = mig_table(device.name);
  if (!table) {
    return "'" + std::string(text) + "' for profile " + device.name +
           ", which has no MIG; profiles with MIG are h200 and a100";
  }
  const std::vector<std::string_view> parts = split(text, ';');
  if (parts.size() > device_count) {
    return "'" + std::string(text) + "' is for " + std::to_string(parts.size()) +
           " devices, but there are " + std::to_string(device_count);
  }
  for (const std::string_view part : parts) {
    layout->emplace_back();
    std::string error = read_device(part, device, *table, &layout->back());
    if (!error.empty()) return error;
  }
  return {};
}

bool add_mig_instance(const MigProfile& profile, uint32_t start,
                      std::vector<MigInstance>* instances) {
  uint32_t taken = 0, number = 1, alike = 0;
  for (const MigInstance& other : *instances) {
    taken |= slices_of(*other.profile, other.start);
    alike += other.profile == &profile;
  }
  const auto has = [&](uint32_t wanted) {
    return std::any_of(instances->begin(), instances->end(),
                       [&](const MigInstance& other) { return other.number == wanted; });
  };
  while (has(number)) ++number;
  if (alike >= profile.most || instances->size() >= kMaxMigInstances) return false;
  for (uint32_t i = 0; i < profile.start_count; ++i) {
    const uint32_t at = profile.starts[i];
    if ((start != kNone32 && start != at) || (taken & slices_of(profile, at))) continue;
    instances->push_back({&profile, at, number, false});
    return true;
  }
  return false;
}

std::vector<DeviceInfo> gpus_of(const Profile& profile, uint32_t device_count,
                                const MigLayout& layout) {
  std::vector<DeviceInfo> gpus;
  for (uint32_t i = 0; i < device_count; ++i) {
    if (i >= layout.size() || layout[i].empty()) {
      gpus.push_back(device_info(profile, i));
      continue;
    }
    for (const MigInstance& instance : layout[i]) {
      gpus.push_back(instance_info(profile, i, instance));
    }
  }
  for (uint32_t i = 0; i < gpus.size(); ++i) gpus[i].gpu = i;
  return gpus;
}

}  // namespace tandem::softgpu
