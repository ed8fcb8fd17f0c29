"""Allocates with every allocator until it is refused, then frees; prints what happened.

    python tests/shim/memory_limits.py SOCKET_FOLDER

Runs in the environment of the software GPU with the shim preloaded. Prints one JSON object: for
each allocator what was granted, how it was refused, the shim's highest and final count, and by how
much the device's ledger grew from beginning to end.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from cuda.bindings import driver as cu
from shim_daemon import VIRTUAL, FakeDaemon

MIB = 1 << 20
LIMIT = 64 * MIB
PIECE = 6 * MIB


def ok(result):
    status, *values = result
    assert status == cu.CUresult.CUDA_SUCCESS, status
    return values[0] if values else None


def physical(size=PIECE):
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return cu.cuMemCreate(size, prop, 0)


def shape(kind, depth):
    found = kind()
    found.Width, found.Height = 1024, PIECE // 1024 // 4 // (depth or 1)
    if depth:
        found.Depth = depth
    found.Format, found.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    return found


def new_pool():
    props = cu.CUmemPoolProps()
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    pool = ok(cu.cuMemPoolCreate(props))
    # Create a pool that keeps what it has, as PyTorch does.
    which = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ok(cu.cuMemPoolSetAttribute(pool, which, cu.cuuint64_t(2**64 - 1)))
    return pool


def run_graph():
    """Launch a graph with one memory node, which keeps what it allocated."""
    graph = ok(cu.cuGraphCreate(0))
    params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    params.bytesize = PIECE
    status, node = cu.cuGraphAddMemAllocNode(graph, [], 0, params)
    assert status == cu.CUresult.CUDA_SUCCESS
    ok(cu.cuGraphAddMemFreeNode(graph, [node], 1, params.dptr))
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    (status,) = cu.cuGraphLaunch(executable, 0)
    return status, (graph, executable)


def end_graph(pair):
    ok(cu.cuGraphExecDestroy(pair[1]))
    ok(cu.cuGraphDestroy(pair[0]))


def allocators():
    """Return name -> (allocate, free)."""
    pool = new_pool()
    array, array3d = cu.CUDA_ARRAY_DESCRIPTOR, cu.CUDA_ARRAY3D_DESCRIPTOR
    managed = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    return {
        "cuMemAlloc": (lambda: cu.cuMemAlloc(PIECE), cu.cuMemFree),
        "cuMemAllocPitch": (lambda: cu.cuMemAllocPitch(1000, PIECE // 1024, 4)[:2], cu.cuMemFree),
        "cuMemAllocManaged": (lambda: cu.cuMemAllocManaged(PIECE, managed), cu.cuMemFree),
        "cuMemAllocAsync": (
            lambda: cu.cuMemAllocAsync(PIECE, 0),
            lambda address: cu.cuMemFreeAsync(address, 0),
        ),
        "cuMemAllocFromPoolAsync": (
            lambda: cu.cuMemAllocFromPoolAsync(PIECE, pool, 0),
            lambda address: cu.cuMemFreeAsync(address, 0),
        ),
        "cuMemCreate": (physical, cu.cuMemRelease),
        "cuArrayCreate": (lambda: cu.cuArrayCreate(shape(array, 0)), cu.cuArrayDestroy),
        "cuArray3DCreate": (lambda: cu.cuArray3DCreate(shape(array3d, 2)), cu.cuArrayDestroy),
        "cuMipmappedArrayCreate": (
            lambda: cu.cuMipmappedArrayCreate(shape(array3d, 2), 1),
            cu.cuMipmappedArrayDestroy,
        ),
        "cuGraphLaunch": (run_graph, end_graph),
    }


def device_holds():
    free, total = cu.cuMemGetInfo()[1:]
    return int(total) - int(free)


def at_the_limit(attached, allocate, free):
    attached.process.set_memory_limit(limit_bytes=2**64 - 1)
    before, counted_before = device_holds(), attached.snapshot().device_bytes
    attached.process.set_memory_limit(limit_bytes=LIMIT)
    held, most = [], 0
    for _ in range(100):
        status, made = allocate()
        most = max(most, attached.snapshot().device_bytes)
        if status != cu.CUresult.CUDA_SUCCESS:
            break
        held.append(made)
    refused = attached.snapshot().refused_count
    by = attached.snapshot().refused_by
    counted_full = attached.snapshot().device_bytes - counted_before
    attached.process.set_memory_limit(limit_bytes=2**64 - 1)
    ledger_full = device_holds() - before
    attached.process.set_memory_limit(limit_bytes=LIMIT)
    if isinstance(made, tuple):
        free(made)  # a graph that was created but never launched
    for each in held:
        free(each)
    ok(cu.cuCtxSynchronize())
    # Spare memory of pools and graphs goes to any allocation that needs it.
    whole = ok(cu.cuMemAlloc(LIMIT))
    free_now, total = cu.cuMemGetInfo()[1:]
    ok(cu.cuMemFree(whole))
    counted = attached.snapshot().device_bytes
    attached.process.set_memory_limit(limit_bytes=2**64 - 1)
    return {
        "granted": len(held),
        "status": status.name,
        "refused": refused,
        "refused_by": by,
        "off": counted_full - ledger_full,
        "most": most,
        "shown": [int(free_now), int(total)],
        "counted": counted,
        "leaked": device_holds() - before,
    }


def attach(folder):
    daemon = FakeDaemon(folder)
    found = []
    answering = threading.Thread(target=lambda: found.append(daemon.attach(clock=VIRTUAL)))
    answering.start()
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    cu.cuMemGetInfo()
    answering.join(20)
    return found[0]


def main():
    ok(cu.cuInit(0))
    attached = attach(Path(sys.argv[1]))
    seen = {}
    for name, (allocate, free) in allocators().items():
        seen[name] = at_the_limit(attached, allocate, free)
    # Reset the device: all memory goes, and the whole limit is available again.
    attached.process.set_memory_limit(limit_bytes=LIMIT)
    for _ in range(3):
        ok(cu.cuMemAlloc(PIECE))
        ok(cu.cuMemAllocAsync(PIECE, 0))
    before = attached.snapshot().device_bytes
    ok(cu.cuDevicePrimaryCtxReset(0))
    seen["reset"] = [before, attached.snapshot().device_bytes]
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
