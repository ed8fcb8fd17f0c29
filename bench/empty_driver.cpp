// A libcuda.so.1 whose calls do nothing and take no time: what remains of a call under the shim is
// the shim. Only what bench/calls.c and an attaching shim ask for.
#include <cuda.h>

#define EMPTY(name) extern "C" __attribute__((visibility("default"))) CUresult name

static CUdeviceptr g_next_address = 0x700000000000;

EMPTY(cuInit)(unsigned) { return CUDA_SUCCESS; }
EMPTY(cuCtxGetCurrent)(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(0x1000);
  return CUDA_SUCCESS;
}
EMPTY(cuCtxGetDevice)(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
EMPTY(cuCtxSynchronize)() { return CUDA_SUCCESS; }
EMPTY(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
EMPTY(cuMemAlloc_v2)(CUdeviceptr* address, size_t bytes) {
  *address = g_next_address;
  g_next_address += (bytes + 511) & ~size_t{511};
  return CUDA_SUCCESS;
}
EMPTY(cuMemFree_v2)(CUdeviceptr) { return CUDA_SUCCESS; }
EMPTY(cuEventRecord)(CUevent, CUstream) { return CUDA_SUCCESS; }
EMPTY(cuEventQuery)(CUevent) { return CUDA_SUCCESS; }
EMPTY(cuStreamSynchronize)(CUstream) { return CUDA_SUCCESS; }
