#include "cuda_version.h"

#include <cuda.h>

#ifndef SOFTGPU_CUDA_VERSION  // set when the driver is to be older than the header
#define SOFTGPU_CUDA_VERSION CUDA_VERSION
#endif

int softgpu::cuda_version() { return SOFTGPU_CUDA_VERSION; }
