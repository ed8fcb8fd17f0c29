// Kernels for bench/scaling_client.py: a block is bound by computing, or by moving memory.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// On the profile `h200` a block of 256 threads has an SM for 10 us.
extern "C" __global__ void crunch() {}
TANDEM_KERNEL(crunch, 20000.0 * blockDim.x, 4.0)

// 2000 blocks of 256 threads move 2 GB: 420 us at full bandwidth, and as much to compute on a fifth of
// the SMs.
extern "C" __global__ void smooth() {}
TANDEM_KERNEL(smooth, 11000.0 * blockDim.x, 4000.0 * blockDim.x)
