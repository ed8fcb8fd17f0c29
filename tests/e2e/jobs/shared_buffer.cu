// Kernels that read one buffer and write another; some have names that say so. They are declared to
// be long, so that the daemon sees each of their iterations.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

__global__ void doubled(const float* from, float* to) { to[threadIdx.x] = 2 * from[threadIdx.x]; }
TANDEM_KERNEL(doubled, blockDim.x, 1.0e6)

// A C name does not tell which pointers are to const.
extern "C" __global__ void plain_doubled(const float* from, float* to) {
  to[threadIdx.x] = 2 * from[threadIdx.x];
}
TANDEM_KERNEL(plain_doubled, blockDim.x, 1.0e6)
