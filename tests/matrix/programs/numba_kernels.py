"""numba-cuda: kernels as users write them, and the results they must give."""

import math

import numpy as np
from numba import cuda, float32, int32, vectorize

rng = np.random.default_rng(5)


@cuda.jit
def vector_add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


a, b = rng.random(10_000), rng.random(10_000)
c = cuda.device_array_like(a)
vector_add.forall(a.size)(cuda.to_device(a), cuda.to_device(b), c)
assert np.array_equal(c.copy_to_host(), a + b)

# The launch itself copies host arrays to the device and back.
c = np.zeros_like(a)
vector_add[40, 256](a, b, c)
assert np.array_equal(c, a + b)

TILE = 16


@cuda.jit
def multiply(a, b, c):
    """Multiply matrices by tiles in shared memory."""
    left = cuda.shared.array((TILE, TILE), dtype=float32)
    right = cuda.shared.array((TILE, TILE), dtype=float32)
    row, column = cuda.grid(2)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range(cuda.gridDim.y):
        left[i, j] = right[i, j] = 0
        if row < a.shape[0] and tile * TILE + j < a.shape[1]:
            left[i, j] = a[row, tile * TILE + j]
        if column < b.shape[1] and tile * TILE + i < b.shape[0]:
            right[i, j] = b[tile * TILE + i, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[i, k] * right[k, j]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


x, y = rng.random((40, 40), dtype=np.float32), rng.random((40, 40), dtype=np.float32)
z = np.zeros((40, 40), dtype=np.float32)
multiply[(3, 3), (TILE, TILE)](x, y, z)
assert np.allclose(z, x @ y)


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    stride = cuda.gridsize(1)
    while i < values.size:
        cuda.atomic.add(counts, values[i] % counts.size, 1)
        i += stride


values = rng.integers(0, 1000, 5000)
counts = np.zeros(10, dtype=np.int32)
histogram[4, 64](values, counts)
assert np.array_equal(counts, np.bincount(values % 10))


@cuda.jit(device=True)
def distance(x, y):
    return math.sqrt(x * x + y * y)


@cuda.jit
def transcendental(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        kept = cuda.local.array(2, dtype=float32)
        kept[i % 2] = math.sin(x[i])
        out[i] = kept[i % 2] + math.exp(y[i]) + math.log(x[i] + 1) + distance(x[i], y[i])


x, y = rng.random(500, dtype=np.float32), rng.random(500, dtype=np.float32)
out = np.zeros_like(x)
transcendental[8, 64](x, y, out)
assert np.allclose(out, np.sin(x) + np.exp(y) + np.log(x + 1) + np.sqrt(x * x + y * y), rtol=1e-5)


@cuda.jit
def sum_of_warp(values, sums):
    value = values[cuda.grid(1)]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
    if cuda.laneid == 0:
        sums[cuda.grid(1) // 32] = value


numbers = rng.integers(0, 100, 128).astype(np.int32)
sums = np.zeros(4, dtype=np.int32)
sum_of_warp[2, 64](numbers, sums)
assert np.array_equal(sums, numbers.reshape(4, 32).sum(axis=1))


@cuda.reduce
def total(a, b):
    return a + b


assert total(numbers) == numbers.sum()


@vectorize([int32(int32, int32)], target="cuda")
def larger(a, b):
    return max(a, b)


backwards = numbers[::-1].copy()
assert np.array_equal(larger(numbers, backwards), np.maximum(numbers, backwards))
