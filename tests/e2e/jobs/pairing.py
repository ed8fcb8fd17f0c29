"""Training whose kernels are bound by one thing; on the virtual clock."""

from cuda.bindings import driver as cu
from gpu import ok
from waiting import CLOCK, NON_BLOCKING

import tandem

BLOCKS, THREADS, KERNELS = 32, 256, 10  # of each kernel; in an iteration
MOST_BLOCKS = 64  # fill the GPU
BUFFERS = {"smooth": 2, "crunch": 1}
BYTES = {"smooth": 4 * MOST_BLOCKS * THREADS, "crunch": 4 * THREADS}


def train(gpu, kernel: str, iterations: int, blocks: int = BLOCKS) -> tuple[int, int]:
    """Begin and end, in nanoseconds of the device's clock."""
    if not hasattr(gpu, "buffers"):
        gpu.buffers = tuple(ok(cu.cuMemAlloc(BYTES[kernel])) for _ in range(BUFFERS[kernel]))
        gpu.stream = ok(cu.cuStreamCreate(NON_BLOCKING))
    types = (None,) * len(gpu.buffers)
    begin_ns = CLOCK.softgpu_now_ns()
    for _ in range(iterations):
        for _ in range(KERNELS):
            how = {"grid": blocks, "block": THREADS, "stream": gpu.stream}
            ok(gpu.launch(kernel, gpu.buffers, types, **how))
        ok(cu.cuStreamSynchronize(gpu.stream))
        tandem.step()
    return begin_ns, CLOCK.softgpu_now_ns()
