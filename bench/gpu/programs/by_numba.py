"""A program of numba-cuda."""

from __future__ import annotations

import numpy as np
from numba import cuda

from bench.gpu.programs import SEED, Made

SIZES = {"cuda": 1 << 20, "cpu": 1 << 12}  # the software GPU counts as a CPU, being as small
THREADS = 256
ROUNDS = 100  # per iteration


@cuda.jit
def halve_sum(x, y, n):  # noqa: ANN001, ANN201, D103
    at = cuda.grid(1)
    if at < n:
        x[at] = (x[at] + y[at]) / 2


def compute(device: str) -> Made:
    """A kernel of our own, launched again and again."""
    size = SIZES[device]
    chance = np.random.default_rng(SEED)
    x, y = (cuda.to_device(chance.random(size, dtype=np.float32)) for _ in range(2))

    def step() -> None:
        for _ in range(ROUNDS):
            halve_sum[size // THREADS, THREADS](x, y, size)
        cuda.synchronize()

    return Made(step=step, state=lambda: [x.copy_to_host().tobytes()])
