"""numba-cuda: Python compiled to PTX with its types, without loading it."""

import math

from numba import cuda, float32, int64, void


def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


ptx, result = cuda.compile_for_current_device(hypotenuse, (float32, float32), device=True)
assert result == float32
assert ".func" in ptx
assert "sqrt.rn.f32" in ptx
assert ".target sm_90" in ptx


def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor


ptx, result = cuda.compile_ptx(scale, void(float32[::1], float32), cc=(8, 0))
assert ".entry" in ptx
assert ".target sm_80" in ptx

ltoir, _ = cuda.compile(hypotenuse, (int64, int64), cc=(9, 0), output="ltoir")
assert len(ltoir) > 100
