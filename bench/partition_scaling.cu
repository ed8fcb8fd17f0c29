// Kernels for bench/scaling_client.py: one bound by compute, one also by memory bandwidth.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// On the profile `h200` a block of 256 threads occupies an SM for 10 us.
extern "C" __global__ void crunch() {}
TANDEM_KERNEL(crunch, 20000.0 * blockDim.x, 4.0)

// 2000 blocks of 256 threads move 2 GB, which takes 420 us at full bandwidth; their computation
// takes as long on a fifth of the SMs.
extern "C" __global__ void smooth() {}
TANDEM_KERNEL(smooth, 11000.0 * blockDim.x, 4000.0 * blockDim.x)
