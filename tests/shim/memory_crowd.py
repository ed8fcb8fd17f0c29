"""Accounting with several threads and devices; see test_memory_limits.py.

python tests/shim/memory_crowd.py SOCKET_FOLDER
"""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path

from cuda.bindings import driver as cu
from memory_limits import MIB, attach, ok, physical

SIZES = (4096, MIB, 3 * MIB)


def work(context, seed):
    """Allocate and free at random, from the pool that all threads share and outside it."""
    choose = random.Random(seed)
    ok(cu.cuCtxSetCurrent(context))
    stream = ok(cu.cuStreamCreate(1))
    held = []
    for _ in range(400):
        if len(held) < 10 and choose.random() < 0.6:
            held.append(take(choose, stream))
        elif held:
            give_back(*held.pop(choose.randrange(len(held))), stream)
        if choose.random() < 0.1:
            ok(cu.cuStreamSynchronize(stream))
    for each in held:
        give_back(*each, stream)
    ok(cu.cuStreamSynchronize(stream))


def take(choose, stream):
    size, kind = choose.choice(SIZES), choose.choice(("pooled", "pooled", "linear", "physical"))
    if kind == "physical":
        return kind, ok(physical())
    pooled = kind == "pooled"
    return kind, ok(cu.cuMemAllocAsync(size, stream) if pooled else cu.cuMemAlloc(size))


def give_back(kind, what, stream):
    match kind:
        case "pooled":
            ok(cu.cuMemFreeAsync(what, stream))
        case "linear":
            ok(cu.cuMemFree(what))
        case _:
            ok(cu.cuMemRelease(what))


def crowd(context):
    threads = [threading.Thread(target=work, args=(context, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ok(cu.cuCtxSynchronize())


def left():
    """Return how many MiB the limit leaves on the current device."""
    return int(cu.cuMemGetInfo()[1]) // MIB


def two_devices(attached, first):
    """Use two devices with a limit of 20 MiB on each."""
    attached.process.set_memory_limit(limit_bytes=20 * MIB)
    ok(cu.cuMemAlloc(15 * MIB))
    second = ok(cu.cuDevicePrimaryCtxRetain(1))
    ok(cu.cuCtxSetCurrent(second))
    ok(cu.cuMemAlloc(10 * MIB))
    ok(cu.cuMemAllocAsync(4 * MIB, 0))
    refused = cu.cuMemAlloc(10 * MIB)[0].name
    on_second = left()
    ok(cu.cuCtxSetCurrent(first))
    both = attached.snapshot().device_bytes // MIB
    ok(cu.cuDevicePrimaryCtxReset(1))
    return [refused, left(), on_second, both, attached.snapshot().device_bytes // MIB]


def main():
    ok(cu.cuInit(0))
    attached = attach(Path(sys.argv[1]))
    context = ok(cu.cuCtxGetCurrent())
    crowd(context)
    pool = ok(cu.cuDeviceGetDefaultMemPool(0))
    which = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
    reserved = int(ok(cu.cuMemPoolGetAttribute(pool, which)))
    seen = {"crowd": [attached.snapshot().device_bytes, reserved]}
    ok(cu.cuMemPoolTrimTo(pool, 0))
    seen["devices"] = two_devices(attached, context)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
