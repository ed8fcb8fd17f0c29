// Two kernels of 100 us each on half of the SMs of the profile `tiny`.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

extern "C" __global__ void forward(unsigned* x) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *x += 1;
}
TANDEM_KERNEL(forward, 48.0 * blockDim.x, 4.0)

extern "C" __global__ void backward(unsigned* x) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *x += 1;
}
TANDEM_KERNEL(backward, 48.0 * blockDim.x, 4.0)
