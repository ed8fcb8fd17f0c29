// What an SM of each architecture offers to blocks: the table "Technical Specifications per Compute
// Capability" of the programming guide, and the granularities of NVIDIA's occupancy calculator.
#pragma once

#include <cstdint>

#include "protocol.h"

namespace softgpu {

struct DeviceLimits {
  uint32_t threads_per_sm, blocks_per_sm, sm_count;
  uint32_t shared_per_sm;           // bytes
  uint32_t shared_per_block;        // without opting in
  uint32_t shared_per_block_optin;  // after cuFuncSetAttribute
  uint32_t max_cluster;             // portable; 0: no clusters
  uint32_t max_cluster_non_portable;
  uint32_t max_persisting_l2;  // bytes
  uint32_t mem_sync_domains;

  static constexpr uint32_t kThreadsPerBlock = 1024, kWarp = 32;
  static constexpr uint32_t kRegistersPerSm = 65536, kRegistersPerBlock = 65536;
  static constexpr uint32_t kSharedReserved = 1024;  // per block, for the driver
  static constexpr uint32_t kMaxAccessWindowBytes = 128 * 1024 * 1024 - 4096;
  static constexpr uint32_t kMaxGrid[3] = {2147483647, 65535, 65535};
  static constexpr uint32_t kMaxBlock[3] = {1024, 1024, 64};
};

DeviceLimits device_limits(const tandem::softgpu::DeviceInfo& device);

struct BlockNeeds {
  uint32_t threads, registers_per_thread;
  uint64_t shared_bytes;  // static and dynamic
};
// How many such blocks an SM holds at once: the tightest limit among blocks, warps, registers and
// shared memory; 0 if not even one fits.
uint32_t blocks_per_sm(const DeviceLimits& limits, const BlockNeeds& needs);
// The dynamic shared memory that leaves room for `blocks` blocks on an SM.
uint64_t shared_left_for(const DeviceLimits& limits, uint32_t blocks, uint32_t static_bytes);

}  // namespace softgpu
