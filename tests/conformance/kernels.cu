// One source for both kinds of device; see tandem_kernel.h.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#define TANDEM_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif
#include <cooperative_groups.h>

__device__ int counter;

extern "C" __global__ void vadd(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
TANDEM_KERNEL(vadd, (const float* a, const float* b, float* c, int n), blockDim.x,
              12.0 * blockDim.x)

// x = x * factor + addend in one thread, so the result depends on the order.
extern "C" __global__ void affine(unsigned* x, unsigned factor, unsigned addend) {
  *x = *x * factor + addend;
}
TANDEM_KERNEL(affine, 2, 8)

// Like affine, but long: a GPU spins, the software GPU has the duration declared.
extern "C" __global__ void slow_affine(unsigned* x, unsigned factor, unsigned addend) {
#ifdef __CUDACC__
  const long long begin = clock64();
  while (clock64() - begin < 20000000) {
  }
#endif
  *x = *x * factor + addend;
}
TANDEM_KERNEL(slow_affine, 2, 1.0e8)

// Sums 256 numbers per block through shared memory.
extern "C" __global__ void block_sums(const unsigned* x, unsigned* sums) {
  __shared__ unsigned tile[256];
  const unsigned t = threadIdx.x;
  tile[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (unsigned half = 128; half > 0; half /= 2) {
    if (t < half) tile[t] += tile[t + half];
    __syncthreads();
  }
  if (t == 0) sums[blockIdx.x] = tile[0];
}
TANDEM_KERNEL(block_sums, 256, 1028)

extern "C" __global__ void mixed(char small, double big, short middle, double* out) {
  *out = small + big + middle;
}
TANDEM_KERNEL(mixed, 3, 8)

extern "C" __global__ void count_up() { atomicAdd(&counter, 1); }
TANDEM_KERNEL(count_up, 1, 4)

extern "C" __global__ void poke(unsigned* where) { *where = 1; }
TANDEM_KERNEL(poke, 0, 4)

// Writes down the SM that each block runs on.
extern "C" __global__ void note_sm(unsigned* sms) {
#ifdef __CUDACC__
  unsigned sm;
  asm("mov.u32 %0, %%smid;" : "=r"(sm));
  sms[blockIdx.x] = sm;
#else
  sms[blockIdx.x] = tandem_smid();
#endif
}
TANDEM_KERNEL(note_sm, 1, 4)

// Numbers in shared memory survive the grid barrier; after it, every block adds what all have
// written.
extern "C" __global__ void sum_over_grid(unsigned* sums, unsigned* totals) {
  __shared__ unsigned own;
  const auto grid = cooperative_groups::this_grid();
  if (threadIdx.x == 0) own = 0;
  __syncthreads();
  atomicAdd(&own, static_cast<unsigned>(grid.thread_rank()));
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = own;
  grid.sync();
  if (threadIdx.x != 0) return;
  unsigned total = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) total += sums[b];
  totals[blockIdx.x] = 1000 * total + own;
}
TANDEM_KERNEL(sum_over_grid, blockDim.x, 4.0 * blockDim.x)

// Each block reads the shared memory of the next block in its cluster.
extern "C" __global__ void turn_in_cluster(unsigned* out) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __shared__ unsigned own[32];
  TANDEM_DYNAMIC_SHARED(unsigned, more);
  const auto cluster = cooperative_groups::this_cluster();
  own[threadIdx.x] = 100 * blockIdx.x + threadIdx.x;
  more[threadIdx.x] = 7 * blockIdx.x;
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  const unsigned* theirs = cluster.map_shared_rank(own, next);
  const unsigned* dynamic = cluster.map_shared_rank(more, next);
  out[blockIdx.x * blockDim.x + threadIdx.x] = theirs[threadIdx.x] + dynamic[threadIdx.x];
  cluster.sync();
#endif
}
TANDEM_KERNEL(turn_in_cluster, blockDim.x, 4.0 * blockDim.x)

// The two halves of the barrier: what is written before arriving is seen after waiting.
extern "C" __global__ void arrive_and_wait(unsigned* words) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const auto cluster = cooperative_groups::this_cluster();
  for (unsigned round = 1; round <= 3; ++round) {
    if (threadIdx.x == 0) words[blockIdx.x] = round * (blockIdx.x + 1);
    __threadfence();
    cluster.barrier_arrive();
    cluster.barrier_wait();
    const unsigned seen = words[gridDim.x - 1 - blockIdx.x];
    cluster.sync();
    if (threadIdx.x == 0) words[gridDim.x + blockIdx.x] += seen;
  }
#endif
}
TANDEM_KERNEL(arrive_and_wait, blockDim.x, 12.0 * blockDim.x)
