"""In a job on the software GPU: iterations, and what can go wrong between them."""

from cuda.bindings import driver as cu
from gpu import ok
from waiting import NON_BLOCKING, short

import tandem


def iterate(gpu, count, leak_bytes=0):
    """Run iterations of about 2 ms, each of which may keep some memory; return the addresses."""
    kept = []
    for _ in range(count):
        short(gpu)
        if leak_bytes:
            kept.append(int(ok(cu.cuMemAlloc(leak_bytes))))
        tandem.step()
    return kept


def hang(gpu):
    """Let a stream wait for a value that nobody writes; return the address that releases it."""
    stream, flag, word = ok(cu.cuStreamCreate(NON_BLOCKING)), gpu.word(0), gpu.word(1)
    ok(cu.cuStreamWaitValue32(stream, flag, 1, 0))
    gpu.affine(word, 2, 1, stream=stream)
    return int(flag)


def let_go(flag):
    ok(cu.cuMemcpyHtoD(flag, (1).to_bytes(4, "little"), 4))
