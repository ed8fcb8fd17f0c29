"""cuda.core: a template kernel compiled by NVRTC, loaded, queried and launched."""

import os

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)

SOURCE = """
template <typename T>
__global__ void vector_add(const T* a, const T* b, T* c, size_t n) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""

device = Device()
device.set_current()
stream = device.create_stream()

options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}", lineinfo=True)
code = Program(SOURCE, code_type="c++", options=options).compile(
    os.environ["TEST_CODE"], name_expressions=("vector_add<float>",)
)
kernel = code.get_kernel("vector_add<float>")
assert kernel.num_arguments == 4
assert [argument.size for argument in kernel.arguments_info] == [8, 8, 8, 8]

n = 50_000
memory = LegacyPinnedMemoryResource()
a, b, c = (memory.allocate(n * 4) for _ in range(3))
host = [np.from_dlpack(buffer).view(np.float32) for buffer in (a, b, c)]
host[0][:] = np.arange(n)
host[1][:] = 0.5
host[2][:] = 0

on_device = [device.allocate(n * 4, stream=stream) for _ in range(3)]
on_device[0].copy_from(a, stream=stream)
on_device[1].copy_from(b, stream=stream)
config = LaunchConfig(grid=(n + 255) // 256, block=256)
launch(stream, config, kernel, *on_device, np.uint64(n))
on_device[2].copy_to(c, stream=stream)
stream.sync()
assert np.array_equal(host[2], np.arange(n) + np.float32(0.5))
