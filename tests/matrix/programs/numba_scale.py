"""numba-cuda: one kernel on a device array."""

import numpy as np
from numba import cuda


@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor


x = cuda.to_device(np.arange(1000, dtype=np.float32))
scale[8, 128](x, np.float32(3))
assert np.array_equal(x.copy_to_host(), 3 * np.arange(1000, dtype=np.float32))
