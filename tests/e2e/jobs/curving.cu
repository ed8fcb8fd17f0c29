// A layer that takes 100 us on half of the SMs of the profile `tiny`, and a kernel that collects
// its result.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// Only one of the blocks writes.
extern "C" __global__ void layer(unsigned* x) {
  if (blockIdx.x == 0) x[threadIdx.x] += 1;
}
TANDEM_KERNEL(layer, 48.0 * blockDim.x, 4.0)

// The same for the way back, under another name so that the timeline tells the two apart.
extern "C" __global__ void layer_back(unsigned* x) {
  if (blockIdx.x == 0) x[threadIdx.x] += 1;
}
TANDEM_KERNEL(layer_back, 48.0 * blockDim.x, 4.0)

extern "C" __global__ void gather(unsigned* sum, const unsigned* x) { *sum += x[0]; }
TANDEM_KERNEL(gather, 1.0, 8.0)
