// Kernels for bench/sets.c: each step of a word comes out right only behind the steps before it, and
// has blocks enough for all SMs of a GPU. Two alike, so that a timeline tells two streams apart.
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
