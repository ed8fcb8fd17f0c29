// The blocks of a cluster: their barrier, and each other's shared memory.
//
// In the shared state space the first 16 MiB of addresses are the block's own; above them every rank
// of the cluster has a window of that size, which is what mapa gives.
#pragma once

#include "warp.h"

namespace softgpu::ptx {

// barrier.cluster.arrive and wait. False: the warp has to wait.
void arrive_at_cluster(Warp& warp, uint32_t mask);
bool wait_for_cluster(Warp& warp);
// A warp has arrived or ended: lets go who has waited for that.
void release_cluster(Cluster& cluster);

// Whose shared memory has all of [at, at + bytes); null: nobody's of the cluster.
const Block* holder_of(const Block& block, uint64_t at, uint32_t bytes);
// Addresses of the shared space and generic ones; what leads nowhere stays out of bounds.
uint64_t shared_to_generic(const Block& block, uint64_t at);
uint64_t generic_to_shared(const Block& block, uint64_t at);

}  // namespace softgpu::ptx
