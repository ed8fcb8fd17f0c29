"""Requests with pauses between them, and work that fills the pauses; on the virtual clock."""

import ctypes

from cuda.bindings import driver as cu
from gpu import ok
from waiting import CLOCK

BLOCKS = 9  # of every kernel, which takes about 28 us
REQUEST_KERNELS, FILL_KERNELS = 10, 64


def submit(gpu, kernels: int) -> None:
    """Submit that many kernels in a row."""
    if not hasattr(gpu, "numbers"):
        gpu.numbers, gpu.stream = ok(cu.cuMemAlloc(4)), ok(cu.cuStreamCreate(1))
    pointers = (gpu.numbers,) * 3
    types = (None, None, None, ctypes.c_int)
    for _ in range(kernels):
        ok(gpu.launch("vadd", (*pointers, 0), types, grid=BLOCKS, block=256, stream=gpu.stream))


def launch(gpu, kernels: int) -> None:
    """Submit that many kernels and wait for them."""
    submit(gpu, kernels)
    ok(cu.cuStreamSynchronize(gpu.stream))


def serve(gpu, requests: int, pause_ns: int) -> list[tuple[int, int]]:
    """Serve requests one by one; return (begin, end) of each, in ns of the device's clock."""
    served = []
    for _ in range(requests):
        CLOCK.softgpu_wait_until_ns(ctypes.c_uint64(CLOCK.softgpu_now_ns() + pause_ns))
        begin_ns = CLOCK.softgpu_now_ns()
        launch(gpu, REQUEST_KERNELS)
        served.append((begin_ns, CLOCK.softgpu_now_ns()))
    return served


def fill(gpu) -> None:
    """Run short kernels and wait for them now and then."""
    launch(gpu, FILL_KERNELS)
