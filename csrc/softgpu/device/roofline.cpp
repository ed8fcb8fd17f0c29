#include "roofline.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tandem::softgpu {
namespace {

double wanted_rate(const BandwidthClaim& claim) {
  if (claim.floor_ns <= 0) return std::numeric_limits<double>::infinity();
  return claim.bytes / claim.floor_ns;
}

}  // namespace

uint32_t blocks_per_sm(const DeviceInfo& device, const KernelShape& kernel) {
  const uint32_t by_threads = device.max_threads_per_sm / std::max(1u, kernel.block_threads);
  const uint32_t fitting = kernel.fitting_blocks ? kernel.fitting_blocks : by_threads;
  return std::max(1u, std::min({device.max_blocks_per_sm, by_threads, fitting}));
}

uint32_t sm_demand(const DeviceInfo& device, const KernelShape& kernel) {
  const uint64_t per_sm = blocks_per_sm(device, kernel);
  const uint64_t wanted = kernel.blocks / per_sm + (kernel.blocks % per_sm != 0 ? 1 : 0);
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, device.sm_count));
}

double compute_ns(const DeviceInfo& device, const KernelShape& kernel, uint32_t sms) {
  const uint64_t rounds = kernel.blocks / sms + (kernel.blocks % sms != 0 ? 1 : 0);
  const double flops_per_ns_per_sm = device.flops_per_s / 1e9 / device.sm_count;
  return static_cast<double>(rounds) * kernel.flops_per_block / flops_per_ns_per_sm;
}

void share_bandwidth(double bytes_per_s, std::vector<BandwidthClaim>& claims) {
  std::vector<size_t> order(claims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return wanted_rate(claims[a]) / claims[a].weight < wanted_rate(claims[b]) / claims[b].weight;
  });
  double left = bytes_per_s / 1e9;
  double weight_left = 0;
  for (const BandwidthClaim& claim : claims) weight_left += claim.bytes > 0 ? claim.weight : 0;
  for (const size_t i : order) {
    BandwidthClaim& claim = claims[i];
    claim.duration_ns = claim.floor_ns;
    if (claim.bytes <= 0) continue;
    const double fair = left * claim.weight / weight_left;
    const double wanted = wanted_rate(claim);
    if (wanted > fair) claim.duration_ns = claim.bytes / fair;
    left -= std::min(wanted, fair);
    weight_left -= claim.weight;
  }
}

}  // namespace tandem::softgpu
