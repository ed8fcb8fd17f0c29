// The kernels of the demo's programs. One source for both kinds of device: NVRTC or nvcc compiles it
// for a GPU, g++ for the software GPU, where TANDEM_KERNEL declares what a block costs.
//
// All arithmetic is on unsigned 32-bit words and wraps, so the sum over a buffer after any chain of
// these kernels has a closed form (checksum.py), and a launch that is lost, doubled or out of order
// changes it. A block handles kChunk words: the length of a kernel is the number of its blocks.
#ifdef __CUDACC__
#define TANDEM_KERNEL(name, flops_per_block, bytes_per_block)
#else
#include "tandem_kernel.h"
#endif

constexpr unsigned kChunk = 4096;

// x[i] = a * x[i] + c
extern "C" __global__ void affine(unsigned* x, unsigned a, unsigned c) {
  unsigned* chunk = x + static_cast<unsigned long long>(blockIdx.x) * kChunk;
  for (unsigned i = threadIdx.x; i < kChunk; i += blockDim.x) chunk[i] = a * chunk[i] + c;
}
TANDEM_KERNEL(affine, 2.0 * kChunk, 8.0 * kChunk)

// x[i] = a * x[i] + y[i]
extern "C" __global__ void mix(unsigned* x, const unsigned* y, unsigned a) {
  const unsigned long long begin = static_cast<unsigned long long>(blockIdx.x) * kChunk;
  for (unsigned i = threadIdx.x; i < kChunk; i += blockDim.x)
    x[begin + i] = a * x[begin + i] + y[begin + i];
}
TANDEM_KERNEL(mix, 2.0 * kChunk, 12.0 * kChunk)

// Every chunk of x becomes a copy of `input`, one chunk long.
extern "C" __global__ void spread(unsigned* x, const unsigned* input) {
  unsigned* chunk = x + static_cast<unsigned long long>(blockIdx.x) * kChunk;
  for (unsigned i = threadIdx.x; i < kChunk; i += blockDim.x) chunk[i] = input[i];
}
TANDEM_KERNEL(spread, 0.0, 8.0 * kChunk)

// Thread t of a block adds up its words of the block's chunk into partial[block * blockDim.x + t].
// A second call over the partials, and so on, leaves one chunk or less.
extern "C" __global__ void fold(const unsigned* x, unsigned* partial) {
  const unsigned* chunk = x + static_cast<unsigned long long>(blockIdx.x) * kChunk;
  unsigned sum = 0;
  for (unsigned i = threadIdx.x; i < kChunk; i += blockDim.x) sum += chunk[i];
  partial[static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}
TANDEM_KERNEL(fold, 1.0 * kChunk, 4.0 * kChunk)
