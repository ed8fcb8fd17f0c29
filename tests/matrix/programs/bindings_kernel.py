"""cuda.bindings: CUDA C++ through NVRTC to PTX, loaded and launched with packed parameters."""

import numpy as np
from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

SOURCE = b"""
extern "C" __global__
void saxpy(float a, const float* x, const float* y, float* out, size_t n) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""


def check(result):
    status, *values = result
    assert status.value == 0, status
    return values[0] if len(values) == 1 else tuple(values)


def compile_to_ptx(source, options):
    program = check(nvrtc.nvrtcCreateProgram(source, b"saxpy.cu", 0, [], []))
    check(nvrtc.nvrtcCompileProgram(program, len(options), options))
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    check(nvrtc.nvrtcDestroyProgram(program))
    return ptx


check(cu.cuInit(0))
device = check(cu.cuDeviceGet(0))
attribute = cu.CUdevice_attribute
major = check(
    cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
)
minor = check(
    cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
)
context = check(cu.cuDevicePrimaryCtxRetain(device))
check(cu.cuCtxSetCurrent(context))

ptx = compile_to_ptx(SOURCE, [b"--fmad=false", b"--gpu-architecture=compute_%d%d" % (major, minor)])
module = check(cu.cuModuleLoadData(np.char.array(ptx).ctypes.data))
kernel = check(cu.cuModuleGetFunction(module, b"saxpy"))

THREADS, BLOCKS = 256, 64
n = np.array([THREADS * BLOCKS], dtype=np.uint64)
a = np.array([2.5], dtype=np.float32)
x = np.random.default_rng(1).random(int(n[0])).astype(np.float32)
y = np.random.default_rng(2).random(int(n[0])).astype(np.float32)
out = np.zeros_like(x)

stream = check(cu.cuStreamCreate(0))
on_device = [check(cu.cuMemAlloc(x.nbytes)) for _ in range(3)]
check(cu.cuMemcpyHtoDAsync(on_device[0], x.ctypes.data, x.nbytes, stream))
check(cu.cuMemcpyHtoDAsync(on_device[1], y.ctypes.data, y.nbytes, stream))
addresses = [np.array([int(d)], dtype=np.uint64) for d in on_device]
parameters = [a, *addresses, n]
packed = np.array([p.ctypes.data for p in parameters], dtype=np.uint64)
check(cu.cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, packed.ctypes.data, 0))
check(cu.cuMemcpyDtoHAsync(out.ctypes.data, on_device[2], out.nbytes, stream))
check(cu.cuStreamSynchronize(stream))
assert np.array_equal(out, a * x + y)

for memory in on_device:
    check(cu.cuMemFree(memory))
check(cu.cuModuleUnload(module))
check(cu.cuStreamDestroy(stream))
check(cu.cuDevicePrimaryCtxRelease(device))
