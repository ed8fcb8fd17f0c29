"""Modules, libraries and the kernels in them."""

from __future__ import annotations

import ctypes
import os

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, refused, u32


def a_kernel_computes_what_it_is_told():
    gpu = Gpu()
    n = 1000
    a, b = (ok(cu.cuMemAlloc(4 * n)) for _ in range(2))
    ones = u32(*[0x3F800000] * n)  # 1.0f
    ok(cu.cuMemcpyHtoD(a, address(ones), 4 * n))
    types = (None, None, None, ctypes.c_int)
    ok(gpu.launch("vadd", (a, a, b, n), types, grid=4, block=256))
    assert gpu.read(b, n) == [0x40000000] * n  # 2.0f


def threads_of_a_block_meet_at_a_barrier():
    gpu = Gpu()
    x, sums = ok(cu.cuMemAlloc(4 * 1024)), ok(cu.cuMemAlloc(16))
    numbers = u32(*range(1024))
    ok(cu.cuMemcpyHtoD(x, address(numbers), 4096))
    ok(gpu.launch("block_sums", (x, sums), (None, None), grid=4, block=256))
    assert gpu.read(sums, 4) == [sum(range(k * 256, k * 256 + 256)) for k in range(4)]


def parameters_of_all_sizes_arrive():
    gpu = Gpu()
    out = ok(cu.cuMemAlloc(8))
    types = (ctypes.c_char, ctypes.c_double, ctypes.c_short, None)
    ok(gpu.launch("mixed", (b"\x03", 0.5, -7, out), types))
    host = (ctypes.c_double * 1)()
    ok(cu.cuMemcpyDtoH(ctypes.addressof(host), out, 8))
    assert host[0] == -3.5
    function = gpu.function("mixed")
    assert [ok(cu.cuFuncGetParamInfo(function, i)) for i in range(4)] == [
        (0, 1),
        (8, 8),
        (16, 2),
        (24, 8),
    ]
    assert refused(cu.cuFuncGetParamInfo(function, 4)) == "INVALID_VALUE"


def a_kernel_that_touches_unmapped_memory_breaks_its_context():
    gpu = Gpu()
    hole = ok(cu.cuMemAddressReserve(2 << 20, 0, 0, 0))
    ok(gpu.launch("poke", (int(hole),), (ctypes.c_void_p,)))
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
    assert refused(cu.cuMemAlloc(16)) == "ILLEGAL_ADDRESS"


def a_variable_of_the_module_can_be_read():
    gpu = Gpu()
    where, size = ok(cu.cuModuleGetGlobal(gpu.module, b"counter"))
    assert size == 4
    ok(cu.cuMemsetD32(where, 0, 1))
    ok(gpu.launch("count_up", (), (), grid=3, block=5))
    assert gpu.read(where) == [15]


def a_library_gives_kernels_that_launch():
    gpu = Gpu()
    with open(os.environ["TEST_IMAGE"], "rb") as file:
        library = ok(cu.cuLibraryLoadData(file.read(), [], [], 0, [], [], 0))
    kernel = ok(cu.cuLibraryGetKernel(library, b"affine"))
    word = gpu.word(2)
    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    function = ok(cu.cuKernelGetFunction(kernel))
    types = (None, ctypes.c_uint, ctypes.c_uint)
    ok(cu.cuLaunchKernelEx(config, function, ((word, 5, 1), types), 0))
    assert gpu.read(word) == [11]
    ok(cu.cuLibraryUnload(library))


def launches_of_cuda_3_keep_their_settings():
    gpu = Gpu()
    word = gpu.word(2)
    function = gpu.function("affine")
    ok(cu.cuFuncSetBlockShape(function, 1, 1, 1))
    ok(cu.cuFuncSetSharedSize(function, 0))
    pointer = (ctypes.c_uint64 * 1)(int(word))
    ok(cu.cuParamSetv(function, 0, ctypes.addressof(pointer), 8))
    ok(cu.cuParamSeti(function, 8, 3))
    ok(cu.cuParamSeti(function, 12, 1))
    ok(cu.cuParamSetSize(function, 16))
    ok(cu.cuLaunch(function))
    ok(cu.cuLaunchGrid(function, 1, 1))
    stream = ok(cu.cuStreamCreate(0))
    ok(cu.cuLaunchGridAsync(function, 1, 1, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(word) == [67]
    assert refused(cu.cuLaunchGrid(function, 0, 1)) == "INVALID_VALUE"
    assert refused(cu.cuFuncSetBlockShape(function, 0, 1, 1)) == "INVALID_VALUE"
