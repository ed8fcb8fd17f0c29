#include "device_limits.h"

#include <algorithm>

namespace softgpu {
namespace {

constexpr uint32_t kKiB = 1024;
constexpr uint32_t kSchedulers = 4;             // per SM; each has its share of the registers
constexpr uint32_t kRegisterGranularity = 256;  // registers, allocated per warp
constexpr uint32_t kSharedGranularity = 128;    // bytes, allocated per block

struct ArchRow {
  uint32_t arch, shared_per_sm, max_cluster, max_cluster_non_portable;
};
constexpr ArchRow kArchs[] = {
    {80, 164 * kKiB, 0, 0},  {86, 100 * kKiB, 0, 0},   {89, 100 * kKiB, 0, 0},
    {90, 228 * kKiB, 8, 16}, {100, 228 * kKiB, 8, 16}, {120, 100 * kKiB, 8, 8},
};

uint32_t ceil_to(uint32_t value, uint32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

DeviceLimits device_limits(const tandem::softgpu::DeviceInfo& device) {
  const uint32_t arch = device.compute_major * 10 + device.compute_minor;
  const ArchRow* row = kArchs;
  for (const ArchRow& known : kArchs) {
    if (known.arch <= arch) row = &known;
  }
  DeviceLimits limits{};
  limits.threads_per_sm = device.max_threads_per_sm;
  limits.blocks_per_sm = device.max_blocks_per_sm;
  limits.sm_count = device.sm_count;
  limits.shared_per_sm = row->shared_per_sm;
  limits.shared_per_block = 48 * kKiB;
  limits.shared_per_block_optin = row->shared_per_sm - DeviceLimits::kSharedReserved;
  limits.max_cluster = row->max_cluster;
  limits.max_cluster_non_portable = row->max_cluster_non_portable;
  limits.max_persisting_l2 = device.l2_bytes / 8 * 5;
  limits.mem_sync_domains = arch >= 90 ? 4 : 1;
  return limits;
}

uint32_t blocks_per_sm(const DeviceLimits& limits, const BlockNeeds& needs) {
  constexpr uint32_t kWarp = DeviceLimits::kWarp;
  const uint32_t warps = (needs.threads + kWarp - 1) / kWarp;
  if (warps == 0 || needs.threads > DeviceLimits::kThreadsPerBlock ||
      needs.shared_bytes > limits.shared_per_block_optin) {
    return 0;
  }
  const uint32_t by_warps = limits.threads_per_sm / kWarp / warps;
  const uint32_t registers_of_warp =
      ceil_to(needs.registers_per_thread * kWarp, kRegisterGranularity);
  uint32_t by_registers = limits.blocks_per_sm;
  if (registers_of_warp > 0) {
    const uint32_t per_scheduler = DeviceLimits::kRegistersPerSm / kSchedulers;
    by_registers = per_scheduler / registers_of_warp * kSchedulers / warps;
  }
  const uint32_t shared_of_block =
      ceil_to(static_cast<uint32_t>(needs.shared_bytes) + DeviceLimits::kSharedReserved,
              kSharedGranularity);
  const uint32_t by_shared = limits.shared_per_sm / shared_of_block;
  return std::min({limits.blocks_per_sm, by_warps, by_registers, by_shared});
}

uint64_t shared_left_for(const DeviceLimits& limits, uint32_t blocks, uint32_t static_bytes) {
  uint32_t of_block = limits.shared_per_sm / blocks;
  of_block -= of_block % kSharedGranularity;
  const uint32_t used = DeviceLimits::kSharedReserved + static_bytes;
  if (of_block <= used) return 0;
  return std::min<uint64_t>(of_block - used, limits.shared_per_block_optin - static_bytes);
}

}  // namespace softgpu
