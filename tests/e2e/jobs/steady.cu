// Work that takes longer the smaller its set of SMs is, in few blocks, which are run one by one.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

// On the profile `h200` a block occupies an SM for 0.1 ms.
extern "C" __global__ void divisible() {}
TANDEM_KERNEL(divisible, 5.08e7, 4.0)
