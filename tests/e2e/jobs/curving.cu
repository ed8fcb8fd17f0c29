// A layer of 100 us on half of the SMs of the profile `tiny`, and what collects its result.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// Of all blocks one writes.
extern "C" __global__ void layer(unsigned* x) {
  if (blockIdx.x == 0) x[threadIdx.x] += 1;
}
TANDEM_KERNEL(layer, 48.0 * blockDim.x, 4.0)

// The same on the way back: the timeline tells them apart.
extern "C" __global__ void layer_back(unsigned* x) {
  if (blockIdx.x == 0) x[threadIdx.x] += 1;
}
TANDEM_KERNEL(layer_back, 48.0 * blockDim.x, 4.0)

extern "C" __global__ void gather(unsigned* sum, const unsigned* x) { *sum += x[0]; }
TANDEM_KERNEL(gather, 1.0, 8.0)
