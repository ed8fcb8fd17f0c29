#include "profile.h"

#include <cstdio>
#include <cstring>

namespace tandem::softgpu {
namespace {

constexpr uint64_t kMiB = 1024 * 1024;
constexpr uint64_t kGiB = 1024 * kMiB;

constexpr Profile kProfiles[] = {
    {"h200",     132,   1980,   9,    0,          2048, 32,   50 * 1024 * 1024,
     141 * kGiB, 67e12, 4.8e12, 55e9, 528 * kMiB, 3201, 6144, 700,
     75,         5,     true,   7},
    {"a100",    108,     1410,   8,    0,          2048, 32,   40 * 1024 * 1024,
     80 * kGiB, 19.5e12, 2.0e12, 25e9, 432 * kMiB, 1593, 5120, 400,
     50,        4,       true,   7},
    {"rtx4090", 128,     2520,     8,    9,          1536,  24,  72 * 1024 * 1024,
     24 * kGiB, 82.6e12, 1.008e12, 25e9, 384 * kMiB, 10501, 384, 450,
     20,        4,       false,    0},
    {"tiny", 8,     1000,     9,   0,  2048, 32, 1024 * 1024, 1 * kGiB, 8e9,
     1e9,    0.5e9, 8 * kMiB, 125, 32, 50,   5,  3,           true,     0},
    // `tiny` with so little memory that a CPU core moves all of it in milliseconds.
    {"mini", 8,   1000,     9,   0,  2048, 32, 1024 * 1024, 65 * kMiB, 8e9,
     1e9,    2e9, kMiB / 4, 125, 32, 50,   5,  3,           true,      0},
};

}  // namespace

const Profile* find_profile(std::string_view name) {
  for (const Profile& profile : kProfiles) {
    if (name == profile.name) return &profile;
  }
  return nullptr;
}

std::vector<std::string_view> profile_words() {
  std::vector<std::string_view> words;
  for (const Profile& profile : kProfiles) words.emplace_back(profile.name);
  return words;
}

std::string profile_names() {
  std::string names;
  for (const Profile& profile : kProfiles) {
    if (!names.empty()) names += ", ";
    names += profile.name;
  }
  return names;
}

DeviceInfo device_info(const Profile& profile, uint32_t index) {
  DeviceInfo info{};
  std::snprintf(info.name, sizeof info.name, "Tandem Software GPU (%s)", profile.name);
  // A fixed pattern, so that the same device has the same UUID in every run and every process.
  std::memcpy(info.uuid, "TandemSoftGPU", 13);
  info.uuid[13] = static_cast<uint8_t>(profile.name[0]);
  info.uuid[14] = static_cast<uint8_t>(profile.name[1]);
  info.uuid[15] = static_cast<uint8_t>(index);
  std::memcpy(info.device_uuid, info.uuid, sizeof info.uuid);
  info.sm_count = profile.sm_count;
  info.clock_mhz = profile.clock_mhz;
  info.compute_major = profile.compute_major;
  info.compute_minor = profile.compute_minor;
  info.max_threads_per_sm = profile.max_threads_per_sm;
  info.max_blocks_per_sm = profile.max_blocks_per_sm;
  info.l2_bytes = profile.l2_bytes;
  info.gpu = info.index = index;
  info.is_usable = 1;
  info.memory_bytes = profile.memory_bytes;
  info.flops_per_s = profile.flops_per_s;
  info.bytes_per_s = profile.bytes_per_s;
  info.copy_bytes_per_s = profile.copy_bytes_per_s;
  return info;
}

}  // namespace tandem::softgpu
