#include "cluster.h"

#include <algorithm>

namespace softgpu::ptx {
namespace {

constexpr uint32_t kWindowShift = 24;
constexpr uint64_t kWindow = uint64_t{1} << kWindowShift;

uint64_t begin_of(const Block& block) { return reinterpret_cast<uint64_t>(block.shared); }

// Lanes that have neither exited nor returned.
uint32_t remaining(const Warp& warp) {
  return warp.state == WarpState::kDone ? 0 : warp.alive & warp.frames.front().live;
}

}  // namespace

void arrive_at_cluster(Warp& warp, uint32_t mask) {
  Cluster& cluster = *warp.block->cluster;
  warp.at_cluster |= mask;
  warp.cluster_phase = cluster.phase + 1;
  warp.arrived_ns = warp.slept_ns;
  if ((remaining(warp) & ~warp.at_cluster) == 0) release_cluster(cluster);
}

bool wait_for_cluster(Warp& warp) {
  const Cluster& cluster = *warp.block->cluster;
  if (cluster.phase >= warp.cluster_phase) {
    warp.slept_ns = std::max(warp.slept_ns, cluster.slept_ns);
    return true;
  }
  warp.state = WarpState::kAtCluster;
  return false;
}

void release_cluster(Cluster& cluster) {
  bool anyone = false;
  for (const Block* block : cluster.blocks) {
    for (const Warp& warp : block->warps) {
      if ((remaining(warp) & ~warp.at_cluster) != 0) return;
      anyone = anyone || warp.at_cluster != 0;
    }
  }
  if (!anyone) return;
  ++cluster.phase;
  for (const Block* block : cluster.blocks) {
    for (const Warp& warp : block->warps) {
      const bool has_ended = warp.state == WarpState::kDone;
      cluster.slept_ns = std::max(cluster.slept_ns, has_ended ? warp.slept_ns : warp.arrived_ns);
    }
  }
  for (Block* block : cluster.blocks) {
    for (Warp& warp : block->warps) {
      warp.at_cluster = 0;
      if (warp.state != WarpState::kAtCluster) continue;
      warp.slept_ns = std::max(warp.slept_ns, cluster.slept_ns);
      warp.state = WarpState::kReady;
    }
  }
}

const Block* holder_of(const Block& block, uint64_t at, uint32_t bytes) {
  for (const Block* one : block.cluster->blocks) {
    const uint64_t offset = at - begin_of(*one);
    if (offset < one->shared_bytes && bytes <= one->shared_bytes - offset) return one;
  }
  return nullptr;
}

uint64_t shared_to_generic(const Block& block, uint64_t at) {
  const uint64_t window = at >> kWindowShift;
  if (window == 0 || window > block.cluster->blocks.size()) return begin_of(block) + at;
  return begin_of(*block.cluster->blocks[window - 1]) + (at & (kWindow - 1));
}

uint64_t generic_to_shared(const Block& block, uint64_t at) {
  const Block* holder = holder_of(block, at, 1);
  if (holder == nullptr || holder == &block) return at - begin_of(block);
  return (uint64_t{holder->rank} + 1) << kWindowShift | (at - begin_of(*holder));
}

}  // namespace softgpu::ptx
