// One source for both kinds of device; see tandem_kernel.h.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

__device__ int counter;

extern "C" __global__ void vadd(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
TANDEM_KERNEL(vadd, (const float* a, const float* b, float* c, int n), blockDim.x,
              12.0 * blockDim.x)

// x = x * factor + addend, by one thread: order shows.
extern "C" __global__ void affine(unsigned* x, unsigned factor, unsigned addend) {
  *x = *x * factor + addend;
}
TANDEM_KERNEL(affine, 2, 8)

// As affine, but long: a GPU spins, the software GPU has it declared.
extern "C" __global__ void slow_affine(unsigned* x, unsigned factor, unsigned addend) {
#ifdef __CUDACC__
  const long long begin = clock64();
  while (clock64() - begin < 20000000) {
  }
#endif
  *x = *x * factor + addend;
}
TANDEM_KERNEL(slow_affine, 2, 1.0e8)

// Sums 256 numbers a block through shared memory.
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

// The SM that each block ran on.
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
