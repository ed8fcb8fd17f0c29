// Empty kernels for the measurements: only the launch itself costs anything. On the modelled GPU,
// `noop` takes no time, `work` takes a microsecond of an h200, and 32 blocks of `layer` take 100 us
// of half of a tiny.
#ifdef __CUDACC__
#define TANDEM_KERNEL(name, flops_per_block, bytes_per_block)
#else
#include "tandem_kernel.h"
#endif

extern "C" __global__ void noop() {}
TANDEM_KERNEL(noop, 0.0, 0.0)

extern "C" __global__ void work() {}
TANDEM_KERNEL(work, 0.0, 4.8e6)

extern "C" __global__ void layer() {}
TANDEM_KERNEL(layer, 48.0 * blockDim.x, 4.0)

// Like noop, with parameters.
extern "C" __global__ void eight(const void*, const void*, void*, void*, long, long, double,
                                 double) {}
TANDEM_KERNEL(eight, 0.0, 0.0)
