// Kernels for bench/ptx.py: compiled by g++ for the software GPU, and by
// `nvcc -ptx -arch=sm_80 ptx.cu` to ptx.ptx, which the interpreter executes.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// Arithmetic without divergence.
extern "C" __global__ void mix(unsigned* out, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned x = i + 1;
  float f = 1.0f;
#pragma unroll 1
  for (int k = 0; k < rounds; ++k) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    f = f * 0.999f + (float)(x & 255);
  }
  out[i] = x ^ (unsigned)f;
}
TANDEM_KERNEL(mix, 0, 0)

// Divergence: lanes that stop at different times.
extern "C" __global__ void mandelbrot(unsigned* steps, int width, int limit) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float cr = -2.0f + 3.0f * (i % width) / width, ci = -1.25f + 2.5f * (i / width) / width;
  float zr = 0, zi = 0;
  int n = 0;
#pragma unroll 1
  while (n < limit && zr * zr + zi * zi < 4.0f) {
    const float next = zr * zr - zi * zi + cr;
    zi = 2 * zr * zi + ci;
    zr = next;
    ++n;
  }
  steps[i] = n;
}
TANDEM_KERNEL(mandelbrot, 0, 0)

// Memory: repeated smoothing passes over a line.
extern "C" __global__ void smooth(volatile float* line, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
  for (int k = 0; k < rounds; ++k) {
    line[i + 1] = 0.25f * line[i] + 0.5f * line[i + 1] + 0.25f * line[i + 2];
  }
}
TANDEM_KERNEL(smooth, 0, 0)
