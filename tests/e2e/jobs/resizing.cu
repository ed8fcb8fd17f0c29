// Work that takes longer the smaller its set of SMs is, and costs the host next to nothing.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// On the profile `h200` a block occupies an SM for 2.5 us.
extern "C" __global__ void divisible() {}
TANDEM_KERNEL(divisible, 1.27e6, 4.0)
