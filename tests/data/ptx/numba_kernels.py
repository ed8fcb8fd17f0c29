"""The kernels of numba.ptx: printed by this program under numba-cuda 0.30.4."""

import math

from numba import cuda, float64, int32, void


def special(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.sin(x[i]) * math.exp(-x[i] / 100) + math.pow(x[i], 1.5) + math.erf(x[i])


def counted(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i] % bins.size, 1)


if __name__ == "__main__":
    for kernel, signature in (
        (special, void(float64[::1], float64[::1])),
        (counted, void(int32[::1], int32[::1])),
    ):
        ptx, _ = cuda.compile_ptx(kernel, signature, cc=(8, 0))
        print(f"//// {kernel.__name__}\n{ptx}")
