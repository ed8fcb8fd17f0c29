// Blocks of a cluster: their barrier, whole and as arrive and wait, and access to each other's
// shared memory by generic addresses, by shared ones and with atomics.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) turn(unsigned* out) {
  __shared__ unsigned own[64];
  extern __shared__ unsigned more[];
  const cg::cluster_group cluster = cg::this_cluster();
  own[threadIdx.x] = 100 * blockIdx.x + threadIdx.x;
  more[threadIdx.x] = 7 * blockIdx.x;
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  const unsigned* theirs = cluster.map_shared_rank(own, next);
  const unsigned* dynamic = cluster.map_shared_rank(more, next);
  out[blockIdx.x * blockDim.x + threadIdx.x] = theirs[threadIdx.x] + dynamic[threadIdx.x];
  cluster.sync();
}

// A histogram distributed over the shared memory of its cluster's blocks, eight bins in each.
extern "C" __global__ void __cluster_dims__(2, 2, 1) histogram(const unsigned char* x, int n,
                                                               unsigned* bins) {
  __shared__ unsigned part[8];
  const cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 8) part[threadIdx.x] = 0;
  cluster.sync();
  const unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
  const unsigned stride = gridDim.x * gridDim.y * blockDim.x;
  for (unsigned i = block * blockDim.x + threadIdx.x; i < n; i += stride) {
    atomicAdd(cluster.map_shared_rank(&part[x[i] % 8], x[i] / 8 % 4), 1);
  }
  cluster.sync();
  if (threadIdx.x < 8) atomicAdd(&bins[8 * cluster.block_rank() + threadIdx.x], part[threadIdx.x]);
}

// Rounds in which every block adds its neighbour's word, passed on by the narrow shared addresses.
extern "C" __global__ void __cluster_dims__(8, 1, 1) relay(unsigned* out, int rounds) {
  __shared__ unsigned word[2];
  unsigned rank, size, where, far;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) word[0] = rank;
  for (int i = 0; i < rounds; ++i) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    where = static_cast<unsigned>(__cvta_generic_to_shared(&word[i & 1]));
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(where), "r"((rank + 1) % size));
    unsigned seen, owner;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(seen) : "r"(far));
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(owner) : "r"(far));
    if (owner != (rank + 1) % size) __trap();
    if (threadIdx.x == 0) word[(i + 1) & 1] = word[i & 1] + seen;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = word[rounds & 1];
  asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
}
