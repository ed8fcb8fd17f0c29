"""What a job does in the tests of swapping: keeps bytes on the GPU and looks after them."""

import random
from functools import cache

from cuda.bindings import driver as cu
from gpu import ok


@cache  # what is written is compared later
def pattern(seed, size):
    return random.Random(seed).randbytes(size)


def keep(*sizes):
    """Take memory and write a pattern into each piece; their addresses."""
    addresses = [int(ok(cu.cuMemAlloc(size))) for size in sizes]
    for seed, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        ok(cu.cuMemcpyHtoD(address, pattern(seed, size), size))
    return addresses


def kept(addresses, sizes):
    """Whether every byte is what was written."""
    found = []
    for seed, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        host = bytearray(size)
        ok(cu.cuMemcpyDtoH(host, address, size))
        found.append(host == pattern(seed, size))
    return found


def work_through(gpu, word, kernels, say):
    """Submit that many kernels of 100 ms each before it waits for them; what is computed."""
    for _ in range(kernels):
        gpu.affine(word, 1, 1, slow=True)
    say("submitted")
    return gpu.read(word)
