// Two kernels of 100 us each on half of the SMs of the profile `tiny`, bound by different things.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// Each byte of the buffers is moved once, and half as much again.
extern "C" __global__ void smooth(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }
TANDEM_KERNEL(smooth, blockDim.x, 12.0 * blockDim.x)

extern "C" __global__ void crunch(float* x) { x[threadIdx.x] += 1.0F; }
TANDEM_KERNEL(crunch, 48.0 * blockDim.x, 4.0)
