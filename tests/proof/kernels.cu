// Kernels whose order shows in the data they leave behind.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// x = x * factor + addend, word by word.
extern "C" __global__ void mix(unsigned* x, unsigned factor, unsigned addend, unsigned words) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    x[i] = x[i] * factor + addend;
}
TANDEM_KERNEL(mix, 64 * blockDim.x, 8 * blockDim.x)

// The same, but with a long duration.
extern "C" __global__ void slow_mix(unsigned* x, unsigned factor, unsigned addend, unsigned words) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    x[i] = x[i] * factor + addend;
}
TANDEM_KERNEL(slow_mix, 1.0e6, 8 * blockDim.x)

// to = to * 3 + from.
extern "C" __global__ void fold(unsigned* to, const unsigned* from, unsigned words) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    to[i] = to[i] * 3 + from[i];
}
TANDEM_KERNEL(fold, 2 * blockDim.x, 12 * blockDim.x)

extern "C" __global__ void poke(unsigned* where) { *where = 1; }
TANDEM_KERNEL(poke, 0, 4)
