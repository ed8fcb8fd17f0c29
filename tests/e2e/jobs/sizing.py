"""Training whose kernels have as many blocks as the test asks for; on the virtual clock."""

from cuda.bindings import driver as cu
from gpu import ok
from waiting import NON_BLOCKING

import tandem

THREADS, KERNELS = 256, 3  # of each block; kernels in an iteration


def train(gpu, blocks: int, iterations: int, *, stays: bool = False) -> bool:
    """Train in a stream that moves with the job's set, or one that `stays` on the whole GPU."""
    if not hasattr(gpu, "sized"):
        gpu.sized = (
            cu.CUstream(cu.CU_STREAM_LEGACY) if stays else ok(cu.cuStreamCreate(NON_BLOCKING))
        )
    for _ in range(iterations):
        for _ in range(KERNELS):
            ok(gpu.launch("crunch", (), (), grid=blocks, block=THREADS, stream=gpu.sized))
        ok(cu.cuStreamSynchronize(gpu.sized))
        tandem.step()
    return True
