// Two kernels of 100 us each on half of the SMs of the profile `tiny`, bound by different things,
// and the same two at ten times the length.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// The declared cost is one and a half times the bytes of the buffers.
extern "C" __global__ void smooth(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }
TANDEM_KERNEL(smooth, blockDim.x, 12.0 * blockDim.x)

extern "C" __global__ void crunch(float* x) { x[threadIdx.x] += 1.0F; }
TANDEM_KERNEL(crunch, 48.0 * blockDim.x, 4.0)

extern "C" __global__ void long_smooth(const float* a, float* b) {
  b[threadIdx.x] = a[threadIdx.x];
}
TANDEM_KERNEL(long_smooth, blockDim.x, 120.0 * blockDim.x)

extern "C" __global__ void long_crunch(float* x) { x[threadIdx.x] += 1.0F; }
TANDEM_KERNEL(long_crunch, 480.0 * blockDim.x, 4.0)
