// Kernels for bench/sets.c: a word gets the right value only if its steps run in order, and each
// step has enough blocks for all SMs of a GPU. There are two equal kernels, so that a timeline
// tells the two streams apart.
#ifdef __CUDACC__
#define TANDEM_KERNEL(name, flops_per_block, bytes_per_block)
#else
#include "tandem_kernel.h"
#endif

extern "C" __global__ void left(unsigned* word, unsigned factor, unsigned addend) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *word = *word * factor + addend;
}
TANDEM_KERNEL(left, 100000.0 * blockDim.x, 4.0)

extern "C" __global__ void right(unsigned* word, unsigned factor, unsigned addend) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *word = *word * factor + addend;
}
TANDEM_KERNEL(right, 100000.0 * blockDim.x, 4.0)
