// Kernels that record on which SMs they ran, and when; and five that use a GPU in different ways.
#ifndef TANDEM_KERNEL  // nvcc and NVRTC: nothing
#define TANDEM_KERNEL(...)
#endif

typedef unsigned long long word;

#ifdef TANDEM_SOFTGPU_HOST
#include <time.h>
static unsigned sm_of_block() { return tandem_smid(); }
static word global_ns() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (word)now.tv_sec * 1000000000u + (word)now.tv_nsec;
}
#define DEVICE_BLOCKS_TAKE_TURNS 1
#else
__device__ static unsigned sm_of_block() {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}
__device__ static word global_ns() {
  word now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#define DEVICE_BLOCKS_TAKE_TURNS 0
#endif

// Each block stays for a while, so that every SM gets one.
extern "C" __global__ void where(unsigned* sms, word stay_ns) {
  if (threadIdx.x != 0) return;
  const word start = global_ns();
  sms[blockIdx.x] = sm_of_block();
  if (DEVICE_BLOCKS_TAKE_TURNS) return;
  while (global_ns() - start < stay_ns) {
  }
}
TANDEM_KERNEL(where, 1000.0 * blockDim.x, 4.0)

// Runs for `run_ns` and records the spans in which the first block really ran: a count, then a
// beginning and an end for each. A block that was switched out sees the clock jump by more than
// `jump_ns`.
extern "C" __global__ void stamp(word* spans, unsigned most, word run_ns, word jump_ns) {
  if (threadIdx.x != 0 || (DEVICE_BLOCKS_TAKE_TURNS && blockIdx.x != 0)) return;
  const word start = global_ns();
  word begin = start, last = start;
  unsigned count = 0;
  for (word now = start; now - start < run_ns; now = global_ns()) {
    if (now - last > jump_ns && count + 1 < most) {
      if (blockIdx.x == 0) {
        spans[1 + 2 * count] = begin;
        spans[2 + 2 * count] = last;
      }
      count++;
      begin = now;
    }
    last = now;
  }
  if (blockIdx.x != 0) return;
  spans[1 + 2 * count] = begin;
  spans[2 + 2 * count] = last;
  spans[0] = count + 1;
}
TANDEM_KERNEL(stamp, 1000.0 * blockDim.x, 4.0)

extern "C" __global__ void compute(float* out, unsigned rounds) {
  float value = (float)threadIdx.x, other = 1.0f + (float)blockIdx.x;
  for (unsigned i = 0; i < rounds; i++) value = value * 1.000001f + other;
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
TANDEM_KERNEL(compute, (float* out, unsigned rounds), 2.0 * rounds * blockDim.x, 4.0 * blockDim.x)

extern "C" __global__ void copy_words(const word* from, word* to, word count) {
  const word step = (word)gridDim.x * blockDim.x;
  for (word i = (word)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}
TANDEM_KERNEL(copy_words, (const word* from, word* to, word count), 8.0 * count / gridDim.x,
              16.0 * count / gridDim.x)

// One thread per block follows a chain: each step depends on the one before.
extern "C" __global__ void chase(const unsigned* next, unsigned count, unsigned steps,
                                 unsigned* out) {
  if (threadIdx.x != 0) return;
  unsigned at = (blockIdx.x * 7919u) % count;
  for (unsigned i = 0; i < steps; i++) at = next[at];
  out[blockIdx.x] = at;
}
TANDEM_KERNEL(chase, (const unsigned* next, unsigned count, unsigned steps, unsigned* out),
              1000.0 * steps, 32.0 * steps)

// c = a * b of n by n, n a multiple of 16, by tiles in shared memory; blocks of 16 by 16 threads.
extern "C" __global__ void matmul(const float* a, const float* b, float* c, unsigned n) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  const unsigned row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (unsigned at = 0; at < n; at += 16) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + at + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * n + column];
    __syncthreads();
    for (unsigned k = 0; k < 16; k++) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
TANDEM_KERNEL(matmul, (const float* a, const float* b, float* c, unsigned n), 512.0 * n, 128.0 * n)
