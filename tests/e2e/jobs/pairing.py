"""Training whose kernels are bound by one resource; on the virtual clock."""

from cuda.bindings import driver as cu
from gpu import ok
from waiting import CLOCK, NON_BLOCKING

import tandem

BLOCKS, THREADS, KERNELS = 32, 256, 10  # of each kernel; kernels in an iteration
BUFFERS = {"smooth": 2, "crunch": 1, "long_smooth": 2, "long_crunch": 1}


def iterate(gpu, kernel: str, blocks: int = BLOCKS) -> None:
    """Run one iteration without marking it."""
    if not hasattr(gpu, "buffers"):
        size = 4 * THREADS * (blocks if "smooth" in kernel else 1)
        gpu.buffers = tuple(ok(cu.cuMemAlloc(size)) for _ in range(BUFFERS[kernel]))
        gpu.stream = ok(cu.cuStreamCreate(NON_BLOCKING))
    types = (None,) * len(gpu.buffers)
    for _ in range(KERNELS):
        how = {"grid": blocks, "block": THREADS, "stream": gpu.stream}
        ok(gpu.launch(kernel, gpu.buffers, types, **how))
    ok(cu.cuStreamSynchronize(gpu.stream))


def train(gpu, kernel: str, iterations: int, blocks: int = BLOCKS) -> tuple[int, int]:
    """Train; return the begin and the end, in nanoseconds of the device's clock."""
    begin_ns = CLOCK.softgpu_now_ns()
    for _ in range(iterations):
        iterate(gpu, kernel, blocks)
        tandem.step()
    return begin_ns, CLOCK.softgpu_now_ns()
