// The blocks of a cluster: their barrier, and access to each other's shared memory.
//
// In the shared state space the first 16 MiB of addresses are the block's own. Above them each rank
// of the cluster has a window of that size; mapa returns addresses in these windows.
#pragma once

#include "warp.h"

namespace softgpu::ptx {

// barrier.cluster.arrive and wait. The latter returns false if the warp has to wait.
void arrive_at_cluster(Warp& warp, uint32_t mask);
bool wait_for_cluster(Warp& warp);
// Called when a warp has arrived or ended; opens the barrier if no warp is missing any more.
void release_cluster(Cluster& cluster);

// The block of the cluster whose shared memory contains all of [at, at + bytes); null if none does.
const Block* holder_of(const Block& block, uint64_t at, uint32_t bytes);
// Convert between shared and generic addresses; an invalid address stays out of bounds.
uint64_t shared_to_generic(const Block& block, uint64_t at);
uint64_t generic_to_shared(const Block& block, uint64_t at);

}  // namespace softgpu::ptx
