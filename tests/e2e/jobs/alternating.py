"""A trainer that needs all of its memory in every iteration and checks every byte of it."""

import os

from cuda.bindings import driver as cu
from gpu import ok
from swapping import pattern
from waiting import CLOCK

import tandem

KERNELS = 10  # in each iteration
BUFFER = 2 << 20


class Trainer:
    """Buffers that are kept; in the first word of one, a chain of kernels computes."""

    def __init__(self, gpu, megabytes, seed):
        self.gpu, self.seed, self.steps = gpu, seed, 0
        self.word, *self.kept = (ok(cu.cuMemAlloc(BUFFER)) for _ in range(megabytes // 2))
        ok(cu.cuMemsetD32(self.word, seed, BUFFER // 4))
        for number, buffer in enumerate(self.kept):
            ok(cu.cuMemcpyHtoD(buffer, pattern(seed + number, BUFFER), BUFFER))

    def train(self, iterations):
        """Train; return the begin and the end, in nanoseconds of the device's clock."""
        begin_ns = CLOCK.softgpu_now_ns()
        for _ in range(iterations):
            for _ in range(KERNELS):
                self.gpu.affine(self.word, 3, self.seed, slow=True)
            ok(cu.cuCtxSynchronize())
            self.steps += 1
            tandem.step()
        return begin_ns, CLOCK.softgpu_now_ns()

    def train_until(self, path):
        """Train until the file exists; return how many iterations were done in all."""
        while not os.path.exists(path):
            self.train(1)
        return self.steps

    def is_right(self):
        """Tell whether every byte is what it would be if no other job ran."""
        value = self.seed
        for _ in range(self.steps * KERNELS):
            value = (3 * value + self.seed) % 2**32
        first, rest = value.to_bytes(4, "little"), self.seed.to_bytes(4, "little")
        numbered = enumerate(self.kept)
        return read(self.word) == first + rest * (BUFFER // 4 - 1) and all(
            read(buffer) == pattern(self.seed + number, BUFFER) for number, buffer in numbered
        )


def read(buffer):
    host = bytearray(BUFFER)
    ok(cu.cuMemcpyDtoH(host, buffer, BUFFER))
    return host
