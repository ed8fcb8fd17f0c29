"""For the tests of swapping: a job that keeps bytes on the GPU and checks them."""

import random
from functools import cache

from cuda.bindings import driver as cu
from gpu import ok


@cache  # it is needed again to compare
def pattern(seed, size):
    return random.Random(seed).randbytes(size)


def keep(*sizes):
    """Allocate memory, write a pattern into each piece, and return the addresses."""
    addresses = [int(ok(cu.cuMemAlloc(size))) for size in sizes]
    for seed, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        ok(cu.cuMemcpyHtoD(address, pattern(seed, size), size))
    return addresses


def kept(addresses, sizes):
    """Tell for each piece whether every byte is what was written."""
    found = []
    for seed, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        host = bytearray(size)
        ok(cu.cuMemcpyDtoH(host, address, size))
        found.append(host == pattern(seed, size))
    return found


def work_through(gpu, word, kernels, say):
    """Submit that many kernels of 100 ms each before waiting for them; return the result."""
    for _ in range(kernels):
        gpu.affine(word, 1, 1, slow=True)
    say("submitted")
    return gpu.read(word)
