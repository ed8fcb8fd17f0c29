// How long work lasts on the modelled device. It depends only on declared figures and the profile:
//
//   blocks per SM   r    = min(max blocks per SM, max threads per SM / threads per block, what
//                              registers and shared memory allow), >= 1
//   SM demand            = ceil(blocks / r), at most all SMs
//   compute time    C(s) = ceil(blocks / s) * flops per block / (device FLOP/s / SM count)
//   memory time     M    = blocks * bytes per block / share of the device's bandwidth
//   duration             = max(C(s), M, asleep)
//
// ceil(blocks / s) is the number of blocks that the busiest of s SMs has to execute, which gives
// wave quantisation: whole waves of r blocks per SM, then a last one that may be partly empty.
#pragma once

#include <cstdint>
#include <vector>

#include "protocol.h"

namespace tandem::softgpu {

struct KernelShape {
  uint64_t blocks = 0;
  uint32_t block_threads = 1;
  double flops_per_block = 0, bytes_per_block = 0;
  double asleep_ns = 0;         // until the last of its blocks has slept
  uint32_t fitting_blocks = 0;  // per SM, by registers and shared memory; 0: no such limit
  uint32_t least_sms = 0;       // the kernel waits until this many are free at once
};

uint32_t blocks_per_sm(const DeviceInfo& device, const KernelShape& kernel);
uint32_t sm_demand(const DeviceInfo& device, const KernelShape& kernel);
double compute_ns(const DeviceInfo& device, const KernelShape& kernel, uint32_t sms);

// An operation that moves bytes in device memory. Shares are max-min fair, weighted by SMs: nobody
// gets more than it can use, and what one leaves goes to the others.
struct BandwidthClaim {
  double bytes = 0;     // of the whole operation
  double floor_ns = 0;  // compute time: the lower bound, whatever the bandwidth
  double weight = 1;
  double duration_ns = 0;  // result, for the whole operation at this share
};
void share_bandwidth(double bytes_per_s, std::vector<BandwidthClaim>& claims);

}  // namespace tandem::softgpu
