// Kernels that read one buffer and write another, with names that say so and without.
// They are declared to be long, so that the daemon sees every iteration of theirs.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

__global__ void doubled(const float* from, float* to) { to[threadIdx.x] = 2 * from[threadIdx.x]; }
TANDEM_KERNEL(doubled, blockDim.x, 1.0e6)

// Of a C name nobody knows which pointers are to const.
extern "C" __global__ void plain_doubled(const float* from, float* to) {
  to[threadIdx.x] = 2 * from[threadIdx.x];
}
TANDEM_KERNEL(plain_doubled, blockDim.x, 1.0e6)
