"""A trainer that needs all of its memory in every iteration and looks after every byte of it."""

import hashlib

from cuda.bindings import driver as cu
from gpu import ok
from swapping import pattern
from waiting import CLOCK

import tandem

KERNELS = 10  # in an iteration
MIB = 1 << 20


class Trainer:
    """Two buffers: one is read, in the other a chain of kernels computes."""

    def __init__(self, gpu, megabytes, seed):
        self.gpu, self.seed, self.steps = gpu, seed, 0
        self.size = megabytes * MIB // 2
        self.kept, self.word = (ok(cu.cuMemAlloc(self.size)) for _ in range(2))
        ok(cu.cuMemcpyHtoD(self.kept, pattern(seed, self.size), self.size))
        ok(cu.cuMemsetD32(self.word, seed, self.size // 4))

    def train(self, iterations):
        """Begin and end, in nanoseconds of the device's clock."""
        begin_ns = CLOCK.softgpu_now_ns()
        for _ in range(iterations):
            for _ in range(KERNELS):
                self.gpu.affine(self.word, 3, self.seed, slow=True)
            ok(cu.cuCtxSynchronize())
            self.steps += 1
            tandem.step()
        return begin_ns, CLOCK.softgpu_now_ns()

    def is_right(self):
        """Whether every byte is what it would be without anybody else."""
        value = self.seed
        for _ in range(self.steps * KERNELS):
            value = (3 * value + self.seed) % 2**32
        words = value.to_bytes(4, "little") + self.seed.to_bytes(4, "little") * (self.size // 4 - 1)
        return self._read(self.kept) == digest(pattern(self.seed, self.size)) and self._read(
            self.word
        ) == digest(words)

    def _read(self, address):
        host = bytearray(self.size)
        ok(cu.cuMemcpyDtoH(host, address, self.size))
        return digest(host)


def digest(data):
    return hashlib.sha256(data).digest()
