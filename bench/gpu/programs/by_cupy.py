"""A program of CuPy."""

from __future__ import annotations

import cupy
import numpy as np

from bench.gpu.programs import SEED, Made

SIDE = 512
ROUNDS = 100  # per iteration

SCALE = r"""
extern "C" __global__ void scale(float* x, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * by;
}
"""


def compute(device: str) -> Made:
    """Elementwise kernels, a kernel of our own, and matrix products."""
    del device
    chance = np.random.default_rng(SEED)
    x = cupy.asarray(chance.standard_normal((SIDE, SIDE), dtype=np.float32))
    scale = cupy.RawKernel(SCALE, "scale")
    blocks = -(-x.size // 256)

    def step() -> None:
        nonlocal x
        for _ in range(ROUNDS):
            x = cupy.sin(x @ x + 1)
            scale((blocks,), (256,), (x, np.float32(0.5), np.int32(x.size)))
        cupy.cuda.get_current_stream().synchronize()

    return Made(step=step, state=lambda: [cupy.asnumpy(x).tobytes()])
