"""cuda.bindings: devices, contexts, memory of each kind, streams, events, errors."""

import ctypes

import numpy as np
from cuda.bindings import driver as cu


def check(result):
    status, *values = result
    assert status == cu.CUresult.CUDA_SUCCESS, status
    return values[0] if len(values) == 1 else tuple(values)


check(cu.cuInit(0))
assert check(cu.cuDriverGetVersion()) >= 12090
device = check(cu.cuDeviceGet(0))
name = check(cu.cuDeviceGetName(64, device)).split(b"\0")[0].decode()
assert name == "Tandem Software GPU (tiny)", name
attribute = cu.CUdevice_attribute
assert check(cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, device)) == 32
sm_count = attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
assert check(cu.cuDeviceGetAttribute(sm_count, device)) == 8

context = check(cu.cuDevicePrimaryCtxRetain(device))
check(cu.cuCtxSetCurrent(context))
free_bytes, total_bytes = check(cu.cuMemGetInfo())
assert 0 < free_bytes < total_bytes == check(cu.cuDeviceTotalMem(device))

# Copy to the device and back, in stream order.
stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
start, end = check(cu.cuEventCreate(0)), check(cu.cuEventCreate(0))
given = np.arange(1_000_000, dtype=np.float32)
got = np.zeros_like(given)
memory = check(cu.cuMemAlloc(given.nbytes))
check(cu.cuEventRecord(start, stream))
check(cu.cuMemcpyHtoDAsync(memory, given.ctypes.data, given.nbytes, stream))
check(cu.cuMemcpyDtoHAsync(got.ctypes.data, memory, got.nbytes, stream))
check(cu.cuEventRecord(end, stream))
check(cu.cuStreamSynchronize(stream))
assert np.array_equal(given, got)
# 4 MB each way at 0.5 GB/s: the profile's copy engines, not this machine's speed.
assert abs(check(cu.cuEventElapsedTime(start, end)) - 16.0) < 0.1

check(cu.cuMemsetD32(memory, 7, 1000))
check(cu.cuMemcpyDtoH(got.ctypes.data, memory, 4000))
assert (got[:1000].view(np.uint32) == 7).all()

# Pinned memory is ordinary memory that the device can reach.
pinned = check(cu.cuMemHostAlloc(4096, cu.CU_MEMHOSTALLOC_DEVICEMAP))
ctypes.memset(int(pinned), 5, 4096)
check(cu.cuMemcpyHtoD(memory, pinned, 4096))
check(cu.cuMemcpyDtoH(got.ctypes.data, memory, 4096))
assert (got[:1024].view(np.uint8) == 5).all()
check(cu.cuMemFreeHost(pinned))

# Mistakes get CUDA's own answers.
status, _ = cu.cuMemAlloc(2 * total_bytes)
assert status == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, status
check(cu.cuMemFree(memory))
(status,) = cu.cuMemFree(memory)
assert status == cu.CUresult.CUDA_ERROR_INVALID_VALUE, status
status, _ = cu.cuDeviceGet(7)
assert status == cu.CUresult.CUDA_ERROR_INVALID_DEVICE, status
assert check(cu.cuGetErrorName(status)) == b"CUDA_ERROR_INVALID_DEVICE"

check(cu.cuEventDestroy(start))
check(cu.cuEventDestroy(end))
check(cu.cuStreamDestroy(stream))
check(cu.cuDevicePrimaryCtxRelease(device))
