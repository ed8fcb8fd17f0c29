"""cuda.core: two objects linked into one, by whichever linker is there."""

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    Program,
    ProgramOptions,
    launch,
)

CALLER = """
extern "C" __device__ unsigned twice(unsigned);
extern "C" __global__ void apply(unsigned* x) { x[threadIdx.x] = twice(x[threadIdx.x]) + 1; }
"""
CALLED = 'extern "C" __device__ unsigned twice(unsigned x) { return 2 * x; }'

device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"
if Linker.which_backend() == "nvJitLink":
    # To PTX, because the linker's only other output is machine code.
    compiling = ProgramOptions(arch=arch, link_time_optimization=True)
    linking = LinkerOptions(arch=arch, link_time_optimization=True, ptx=True)
    code_type, target = "ltoir", "ptx"
else:
    compiling = ProgramOptions(arch=arch, relocatable_device_code=True)
    linking = LinkerOptions(arch=arch)
    code_type, target = "ptx", "cubin"

objects = [Program(source, "c++", compiling).compile(code_type) for source in (CALLER, CALLED)]
kernel = Linker(*objects, options=linking).link(target).get_kernel("apply")

words = LegacyPinnedMemoryResource().allocate(32 * 4)
seen = np.from_dlpack(words).view(np.uint32)
seen[:] = np.arange(32)
launch(stream, LaunchConfig(grid=1, block=32), kernel, words)
stream.sync()
assert np.array_equal(seen, 2 * np.arange(32) + 1)
