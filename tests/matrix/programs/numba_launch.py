"""numba-cuda: kernels in the style of its documentation, compiled, linked by the driver and run."""

import math

import numpy as np
from numba import cuda, float32

THREADS = 16


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def functions(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = math.sin(x[i]) * math.exp(-x[i] / 100) + math.sqrt(x[i])


@cuda.jit
def matmul(a, b, c):
    """Multiply matrices with tiles in shared memory."""
    tile_a = cuda.shared.array(shape=(THREADS, THREADS), dtype=float32)
    tile_b = cuda.shared.array(shape=(THREADS, THREADS), dtype=float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for i in range(cuda.gridDim.x):
        tile_a[ty, tx] = 0
        tile_b[ty, tx] = 0
        if y < a.shape[0] and tx + i * THREADS < a.shape[1]:
            tile_a[ty, tx] = a[y, tx + i * THREADS]
        if x < b.shape[1] and ty + i * THREADS < b.shape[0]:
            tile_b[ty, tx] = b[ty + i * THREADS, x]
        cuda.syncthreads()
        for j in range(THREADS):
            total += tile_a[ty, j] * tile_b[j, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@cuda.reduce
def add(a, b):
    return a + b


@cuda.jit
def say(x):
    print("from thread", cuda.grid(1), x)


x, y = np.arange(1000, dtype=np.float64), np.ones(1000)
axpy[8, 128](2.0, x, y)
assert np.array_equal(y, 2 * x + 1)

out = np.zeros(1000)
functions[2, 64](x, out)
assert np.allclose(out, np.sin(x) * np.exp(-x / 100) + np.sqrt(x), rtol=1e-12)

a = np.arange(24 * 12, dtype=np.float32).reshape(24, 12) % 7
b = np.arange(12 * 22, dtype=np.float32).reshape(12, 22) % 5
c = np.zeros((24, 22), np.float32)
matmul[(2, 2), (THREADS, THREADS)](a, b, c)
assert np.array_equal(c, a @ b)

assert add(np.arange(1234, dtype=np.int64)) == 1233 * 1234 // 2

say[1, 2](2.5)
cuda.synchronize()
