// A libcuda.so.1 whose calls do nothing and take no time, so that the cost of a call under the shim
// is that of the shim. It has only the functions that bench/calls.cpp, bench/allocs.cpp and an attached
// shim need.
#include <cuda.h>

#include <atomic>

#define EMPTY(name) extern "C" __attribute__((visibility("default"))) CUresult name

template <class Handle>
static CUresult hand_out(Handle* handle) {
  static std::atomic<unsigned long long> range{0x700000000000};  // each thread gets its own range
  static __thread unsigned long long next = 0;
  if (next == 0) next = range.fetch_add(1ull << 36);
  *handle = (Handle)(next += 512);
  return CUDA_SUCCESS;
}

EMPTY(cuInit)(unsigned) { return CUDA_SUCCESS; }
EMPTY(cuCtxGetCurrent)(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(0x1000);
  return CUDA_SUCCESS;
}
EMPTY(cuCtxGetDevice)(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
EMPTY(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
static __thread CUstreamCaptureStatus t_capture = CU_STREAM_CAPTURE_STATUS_NONE;
EMPTY(cuStreamIsCapturing)(CUstream, CUstreamCaptureStatus* status) {
  *status = t_capture;
  return CUDA_SUCCESS;
}
EMPTY(cuStreamGetCtx)(CUstream, CUcontext* context) { return cuCtxGetCurrent(context); }

// launch, graph
EMPTY(cuLaunchKernel)
(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
 void**) {
  return CUDA_SUCCESS;
}
EMPTY(cuGraphLaunch)(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
// copy, memset
EMPTY(cuMemcpyHtoDAsync_v2)(CUdeviceptr, const void*, size_t, CUstream) { return CUDA_SUCCESS; }
EMPTY(cuMemcpyBatchAsync_v2)
(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*, size_t*, size_t, CUstream) {
  return CUDA_SUCCESS;
}
EMPTY(cuMemcpyDtoH_v2)(void*, CUdeviceptr, size_t) { return CUDA_SUCCESS; }
EMPTY(cuMemsetD8Async)(CUdeviceptr, unsigned char, size_t, CUstream) { return CUDA_SUCCESS; }
// memop, host
EMPTY(cuStreamWriteValue32_v2)(CUstream, CUdeviceptr, cuuint32_t, unsigned) { return CUDA_SUCCESS; }
EMPTY(cuLaunchHostFunc)(CUstream, CUhostFn, void*) { return CUDA_SUCCESS; }
// alloc, free, pool, vmm, array
EMPTY(cuMemAlloc_v2)(CUdeviceptr* address, size_t) { return hand_out(address); }
EMPTY(cuMemFree_v2)(CUdeviceptr) { return CUDA_SUCCESS; }
EMPTY(cuMemAllocAsync)(CUdeviceptr* address, size_t, CUstream) { return hand_out(address); }
EMPTY(cuMemFreeAsync)(CUdeviceptr, CUstream) { return CUDA_SUCCESS; }
EMPTY(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*, unsigned long long) {
  return hand_out(handle);
}
EMPTY(cuMemRelease)(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
EMPTY(cuDeviceGetAttribute)(int* value, CUdevice_attribute, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}
EMPTY(cuMemGetAllocationGranularity)
(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = 2 << 20;
  return CUDA_SUCCESS;
}
EMPTY(cuMemAddressReserve)
(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  static std::atomic<unsigned long long> next{0x400000000000};
  *address = next.fetch_add(bytes);
  return CUDA_SUCCESS;
}
EMPTY(cuMemAddressFree)(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
EMPTY(cuMemMap)
(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_SUCCESS;
}
EMPTY(cuMemSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
EMPTY(cuMemUnmap)(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
EMPTY(cuCtxPushCurrent_v2)(CUcontext) { return CUDA_SUCCESS; }
EMPTY(cuCtxPopCurrent_v2)(CUcontext* context) { return cuCtxGetCurrent(context); }
EMPTY(cuArrayCreate_v2)(CUarray* array, const CUDA_ARRAY_DESCRIPTOR*) { return hand_out(array); }
EMPTY(cuArrayDestroy)(CUarray) { return CUDA_SUCCESS; }
// event, query, sync, capture
EMPTY(cuEventCreate)(CUevent* event, unsigned) { return hand_out(event); }
EMPTY(cuEventRecord)(CUevent, CUstream) { return CUDA_SUCCESS; }
EMPTY(cuEventQuery)(CUevent) { return CUDA_SUCCESS; }
EMPTY(cuEventElapsedTime)(float* ms, CUevent, CUevent) {
  *ms = 0.001f;
  return CUDA_SUCCESS;
}
EMPTY(cuStreamWaitEvent)(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
EMPTY(cuStreamQuery)(CUstream) { return CUDA_SUCCESS; }
EMPTY(cuStreamSynchronize)(CUstream) { return CUDA_SUCCESS; }
EMPTY(cuCtxSynchronize)() { return CUDA_SUCCESS; }
EMPTY(cuStreamBeginCapture_v2)(CUstream, CUstreamCaptureMode) {
  t_capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}
EMPTY(cuStreamEndCapture)(CUstream, CUgraph*) {
  t_capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
