"""Memory calls with bad arguments return a CUDA error each time, and the process survives."""

import json

import pytest

# In the child: every exported call of the subject, with several bad argument lists. They contain
# only what CUDA can recognise as bad, so never an invalid host pointer that looks valid.
BEGIN = """
import json
from ctypes import *
gpu = Gpu()
class Location(Structure): _fields_ = [("type", c_int), ("id", c_int)]
class Access(Structure): _fields_ = [("location", Location), ("flags", c_int)]
class Handle(Structure): _fields_ = [("bytes", c_ubyte * 64)]

BIG = c_size_t(2**64 - 2**21)   # whole granules; an address and this overflow
ALL = c_size_t(2**64 - 1)
MIB = c_size_t(2 << 20)
NULL = c_void_p(None)
BAD = c_void_p(0xdead0000beef)  # neither a handle nor memory of the device
plain = c_uint64(int(ok(cu.cuMemAlloc(4096))))
pinned = c_uint64(ok(cu.cuMemHostAlloc(4096, 0)))
kept = c_uint64(int(ok(cu.cuMemAddressReserve(4 << 20, 0, 0, 0))))
managed = c_uint64(int(ok(cu.cuMemAllocManaged(4096, 1))))
pool_props = cu.CUmemPoolProps()
pool_props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
pool_props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
stale_pool = c_void_p(int(ok(cu.cuMemPoolCreate(pool_props))))
"""


def calls(*rows: str) -> str:
    return "\n".join(f"    {row}," for row in rows)


MEMORY = calls(
    "('cuMemAlloc_v2', (NULL, MIB), (out, c_size_t(0)), (out, ALL), (out, BIG))",
    "('cuMemAllocPitch_v2', (NULL, out, MIB, MIB, c_uint(4)), (out, NULL, MIB, MIB, c_uint(4)),"
    " (out, out, ALL, MIB, c_uint(4)), (out, out, BIG, BIG, c_uint(4)),"
    " (out, out, MIB, MIB, c_uint(3)), (out, out, c_size_t(0), MIB, c_uint(4)))",
    "('cuMemFree_v2', (BAD,), (freed,), (kept,), (pinned,), (c_uint64(plain.value + 8),))",
    "('cuMemGetInfo_v2', (NULL, out), (out, NULL))",
    "('cuMemGetAddressRange_v2', (out, out, BAD), (out, NULL, freed), (out, out, ALL))",
    "('cuMemHostAlloc', (NULL, MIB, c_uint(0)), (out, ALL, c_uint(0)), (out, MIB, c_uint(0x80)))",
    "('cuMemAllocHost_v2', (NULL, MIB), (out, ALL))",
    "('cuMemFreeHost', (BAD,), (plain,), (kept,), (c_uint64(pinned.value + 8),))",
    "('cuMemHostRegister_v2', (NULL, MIB, c_uint(0)), (own, c_size_t(0), c_uint(0)),"
    " (own, ALL, c_uint(0)), (own, c_size_t(64), c_uint(0x80)), (pinned, MIB, c_uint(0)),"
    " (plain, c_size_t(64), c_uint(0)), (BAD, c_size_t(64), c_uint(0)))",
    "('cuMemHostUnregister', (NULL,), (BAD,), (pinned,), (own,))",
    "('cuMemHostGetDevicePointer_v2', (NULL, pinned, c_uint(0)), (out, BAD, c_uint(0)),"
    " (out, NULL, c_uint(0)), (out, pinned, c_uint(1)), (out, plain, c_uint(0)))",
    "('cuMemHostGetFlags', (NULL, pinned), (out, BAD), (out, NULL), (out, plain))",
    "('cuPointerGetAttribute', (NULL, c_int(2), plain), (out, c_int(2), BAD),"
    " (out, c_int(2), freed), (out, c_int(99), plain), (out, c_int(0), plain),"
    " (out, c_int(5), plain), (out, c_int(18), kept))",
    "('cuPointerGetAttributes', (c_uint(1), NULL, outs, plain), (c_uint(1), kinds, NULL, plain),"
    " (c_uint(1), kinds, nothing, plain), (c_uint(1), unknown, outs, BAD),"
    " (c_uint(0), kinds, outs, plain))",
    "('cuPointerSetAttribute', (NULL, c_int(6), plain), (out, c_int(6), BAD),"
    " (one, c_int(6), freed), (one, c_int(7), plain), (two, c_int(6), plain))",
)
MANAGED = calls(
    "('cuMemAllocManaged', (NULL, MIB, c_uint(1)), (out, c_size_t(0), c_uint(1)),"
    " (out, MIB, c_uint(0)), (out, MIB, c_uint(4)), (out, ALL, c_uint(1)))",
    "('cuMemAdvise_v2', (BAD, MIB, c_int(1), here), (managed, ALL, c_int(1), here),"
    " (managed, c_size_t(0), c_int(1), here), (managed, c_size_t(8), c_int(0), here),"
    " (managed, c_size_t(8), c_int(77), here), (managed, c_size_t(8), c_int(3), nowhere),"
    " (plain, c_size_t(8), c_int(1), here))",
    "('cuMemPrefetchAsync_v2', (BAD, MIB, here, c_uint(0), NULL), (managed, ALL, here, c_uint(0),"
    " NULL), (managed, c_size_t(8), nowhere, c_uint(0), NULL), (managed, c_size_t(8), here,"
    " c_uint(1), NULL), (managed, c_size_t(8), here, c_uint(0), BAD))",
    "('cuMemRangeGetAttribute', (NULL, c_size_t(4), c_int(1), managed, c_size_t(8)),"
    " (out, c_size_t(3), c_int(1), managed, c_size_t(8)), (out, c_size_t(4), c_int(77), managed,"
    " c_size_t(8)), (out, c_size_t(4), c_int(1), BAD, ALL), (out, c_size_t(0), c_int(3), managed,"
    " c_size_t(8)))",
    "('cuMemRangeGetAttributes', (NULL, sizes, kinds, c_size_t(1), managed, c_size_t(8)),"
    " (outs, NULL, kinds, c_size_t(1), managed, c_size_t(8)), (outs, sizes, NULL, c_size_t(1),"
    " managed, c_size_t(8)), (nothing, sizes, kinds, c_size_t(1), managed, c_size_t(8)),"
    " (outs, sizes, kinds, c_size_t(1), BAD, ALL), (outs, sizes, kinds, c_size_t(0), managed,"
    " c_size_t(8)))",
    "('cuStreamAttachMemAsync', (BAD, managed, c_size_t(0), c_uint(1)), (NULL, BAD, c_size_t(0),"
    " c_uint(1)), (NULL, managed, ALL, c_uint(1)), (NULL, managed, c_size_t(0), c_uint(9)))",
)
BATCHES = calls(
    "('cuMemcpyBatchAsync_v2', (NULL, one, one, MIB, zeros, zeros, c_size_t(1), per_thread),"
    " (one, one, one, c_size_t(0), fine, zeros, c_size_t(0), per_thread),"
    " (one, one, one, c_size_t(1), zeros, zeros, c_size_t(1), per_thread),"
    " (outs, outs, all_bytes, c_size_t(1), fine, zeros, c_size_t(1), per_thread),"
    " (devices, devices, all_bytes, c_size_t(1), fine, zeros, c_size_t(1), per_thread),"
    " (nothing, devices, sizes, c_size_t(1), fine, zeros, c_size_t(1), per_thread),"
    " (devices, devices, sizes, c_size_t(1), fine, one, c_size_t(1), per_thread),"
    " (devices, devices, sizes, c_size_t(1), fine, zeros, c_size_t(2), per_thread),"
    " (devices, devices, sizes, c_size_t(1), fine, zeros, c_size_t(1), BAD),"
    " (devices, devices, sizes, c_size_t(1), fine, zeros, c_size_t(1), NULL))",
    "('cuMemcpyBatchAsync', (NULL, one, one, MIB, zeros, zeros, c_size_t(1), NULL, per_thread),"
    " (devices, devices, all_bytes, c_size_t(1), fine, zeros, c_size_t(1), out, per_thread))",
    "('cuMemcpyWithAttributesAsync', (plain, plain, c_size_t(4), NULL, NULL),"
    " (plain, plain, c_size_t(4), zeros, NULL), (NULL, plain, c_size_t(4), fine, NULL),"
    " (plain, plain, ALL, fine, NULL), (plain, plain, MIB, fine, NULL),"
    " (plain, plain, c_size_t(4), fine, BAD))",
    "('cuMemPrefetchBatchAsync', (NULL, sizes, MIB, byref(here), zeros, c_size_t(1), c_uint64(0),"
    " per_thread), (shared, NULL, c_size_t(1), byref(here), zeros, c_size_t(1), c_uint64(0),"
    " per_thread), (shared, sizes, c_size_t(1), NULL, zeros, c_size_t(1), c_uint64(0),"
    " per_thread), (shared, sizes, c_size_t(1), byref(here), NULL, c_size_t(1), c_uint64(0),"
    " per_thread), (shared, sizes, c_size_t(1), byref(nowhere), zeros, c_size_t(1), c_uint64(0),"
    " per_thread), (shared, all_bytes, c_size_t(1), byref(here), zeros, c_size_t(1), c_uint64(0),"
    " per_thread), (devices, sizes, c_size_t(1), byref(here), zeros, c_size_t(1), c_uint64(0),"
    " per_thread), (shared, sizes, c_size_t(1), byref(here), zeros, c_size_t(1), c_uint64(1),"
    " per_thread))",
    "('cuMemDiscardBatchAsync', (NULL, sizes, c_size_t(1), c_uint64(0), per_thread),"
    " (shared, NULL, c_size_t(1), c_uint64(0), per_thread),"
    " (shared, zeros, c_size_t(1), c_uint64(0), per_thread),"
    " (shared, all_bytes, c_size_t(1), c_uint64(0), per_thread),"
    " (shared, sizes, c_size_t(0), c_uint64(0), per_thread),"
    " (shared, sizes, c_size_t(1), c_uint64(0), NULL))",
    "('cuMemDiscardAndPrefetchBatchAsync', (NULL, sizes, MIB, byref(here), zeros, c_size_t(1),"
    " c_uint64(0), per_thread), (shared, sizes, c_size_t(1), byref(nowhere), zeros, c_size_t(1),"
    " c_uint64(0), per_thread))",
)
POOLS = calls(
    "('cuMemAllocAsync', (NULL, MIB, NULL), (out, c_size_t(0), NULL), (out, ALL, NULL),"
    " (out, BIG, NULL), (out, MIB, BAD))",
    "('cuMemAllocFromPoolAsync', (NULL, MIB, pool, NULL), (out, MIB, NULL, NULL), (out, MIB, BAD,"
    " NULL), (out, MIB, stale_pool, NULL), (out, ALL, pool, NULL), (out, MIB, pool, BAD))",
    "('cuMemFreeAsync', (BAD, NULL), (NULL, NULL), (freed, NULL), (kept, NULL), (plain, BAD))",
    "('cuMemPoolCreate', (NULL, props), (out, NULL), (out, zeros))",
    "('cuMemPoolDestroy', (NULL,), (BAD,), (stale_pool,), (pool,))",
    "('cuMemPoolTrimTo', (NULL, MIB), (BAD, MIB), (stale_pool, MIB))",
    "('cuMemPoolGetAttribute', (NULL, c_int(1), out), (BAD, c_int(1), out), (pool, c_int(1), NULL),"
    " (pool, c_int(99), out), (stale_pool, c_int(1), out))",
    "('cuMemPoolSetAttribute', (NULL, c_int(1), one), (BAD, c_int(1), one), (pool, c_int(1), NULL),"
    " (pool, c_int(99), one), (pool, c_int(8), one), (stale_pool, c_int(1), one))",
    "('cuMemPoolSetAccess', (NULL, byref(access), c_size_t(1)), (BAD, byref(access), c_size_t(1)),"
    " (pool, NULL, c_size_t(1)), (pool, byref(no_access), c_size_t(1)))",
    "('cuMemPoolGetAccess', (NULL, pool, byref(here)), (out, NULL, byref(here)), (out, BAD,"
    " byref(here)), (out, pool, NULL), (out, pool, byref(nowhere)))",
    "('cuDeviceGetDefaultMemPool', (NULL, c_int(0)), (out, c_int(-1)), (out, c_int(99)))",
    "('cuDeviceGetMemPool', (NULL, c_int(0)), (out, c_int(-1)), (out, c_int(99)))",
    "('cuDeviceSetMemPool', (c_int(0), NULL), (c_int(0), BAD), (c_int(0), stale_pool),"
    " (c_int(99), pool))",
    "('cuMemGetDefaultMemPool', (NULL, byref(here), c_int(1)), (out, NULL, c_int(1)),"
    " (out, byref(nowhere), c_int(1)), (out, byref(here), c_int(77)))",
    "('cuMemGetMemPool', (NULL, byref(here), c_int(1)), (out, NULL, c_int(1)),"
    " (out, byref(nowhere), c_int(1)), (out, byref(here), c_int(77)))",
    "('cuMemSetMemPool', (NULL, c_int(1), pool), (byref(here), c_int(1), BAD),"
    " (byref(nowhere), c_int(1), pool), (byref(here), c_int(77), pool))",
    "('cuMemPoolExportToShareableHandle', (NULL, pool, c_int(1), c_uint64(0)), (out, NULL,"
    " c_int(1), c_uint64(0)), (out, BAD, c_int(1), c_uint64(0)), (out, pool, c_int(1),"
    " c_uint64(0)), (out, pool, c_int(77), c_uint64(0)), (out, pool, c_int(1), c_uint64(1)))",
    "('cuMemPoolImportFromShareableHandle', (NULL, NULL, c_int(1), c_uint64(0)), (out, c_void_p(0),"
    " c_int(1), c_uint64(0)), (out, c_void_p(9999), c_int(1), c_uint64(0)), (out, BAD, c_int(77),"
    " c_uint64(0)), (out, c_void_p(2**64 - 1), c_int(1), c_uint64(0)))",
    "('cuMemPoolExportPointer', (NULL, plain), (out, BAD), (out, plain), (out, NULL))",
    "('cuMemPoolImportPointer', (NULL, pool, zeros), (out, NULL, zeros), (out, BAD, zeros),"
    " (out, pool, NULL), (out, pool, zeros))",
)
IPC = calls(
    "('cuIpcGetMemHandle', (NULL, plain), (out, BAD), (out, NULL), (out, freed), (out, kept),"
    " (out, pinned), (out, c_uint64(plain.value + 8)))",
    "('cuIpcOpenMemHandle_v2', (NULL, Handle(), c_uint(1)), (out, Handle(), c_uint(1)),"
    " (out, Handle(), c_uint(0)), (out, other, c_uint(1)))",
    "('cuIpcCloseMemHandle', (NULL,), (BAD,), (plain,), (freed,))",
    "('cuIpcGetEventHandle', (NULL, NULL), (out, NULL), (out, BAD), (out, c_void_p(int(event))))",
    "('cuIpcOpenEventHandle', (NULL, Handle()), (out, Handle()), (out, other))",
)
VMM = calls(
    "('cuMemGetAllocationGranularity', (NULL, vmm, c_int(0)), (out, NULL, c_int(0)),"
    " (out, zeros, c_int(0)), (out, vmm, c_int(2)))",
    "('cuMemAddressReserve', (NULL, MIB, c_size_t(0), NULL, c_uint64(0)), (out, c_size_t(0),"
    " c_size_t(0), NULL, c_uint64(0)), (out, c_size_t(5), c_size_t(0), NULL, c_uint64(0)),"
    " (out, BIG, c_size_t(0), NULL, c_uint64(0)), (out, MIB, c_size_t(3), NULL, c_uint64(0)),"
    " (out, MIB, c_size_t(1 << 63), NULL, c_uint64(0)), (out, MIB, c_size_t(0), c_void_p(5),"
    " c_uint64(0)), (out, MIB, c_size_t(0), NULL, c_uint64(1)))",
    "('cuMemAddressFree', (NULL, MIB), (BAD, MIB), (kept, MIB), (plain, c_size_t(4096)),"
    " (kept, BIG))",
    "('cuMemCreate', (NULL, MIB, vmm, c_uint64(0)), (out, c_size_t(0), vmm, c_uint64(0)),"
    " (out, c_size_t(4096), vmm, c_uint64(0)), (out, BIG, vmm, c_uint64(0)), (out, MIB, NULL,"
    " c_uint64(0)), (out, MIB, zeros, c_uint64(0)), (out, MIB, vmm, c_uint64(1)))",
    "('cuMemRelease', (NULL,), (BAD,), (stale,))",
    "('cuMemMap', (NULL, MIB, c_size_t(0), physical, c_uint64(0)), (BAD, MIB, c_size_t(0),"
    " physical, c_uint64(0)), (kept, c_size_t(0), c_size_t(0), physical, c_uint64(0)),"
    " (kept, BIG, c_size_t(0), physical, c_uint64(0)), (kept, MIB, MIB, physical, c_uint64(0)),"
    " (kept, c_size_t(4 << 20), c_size_t(0), physical, c_uint64(0)), (kept, MIB, BIG, physical,"
    " c_uint64(0)), (kept, MIB, c_size_t(0), stale, c_uint64(0)), (kept, MIB, c_size_t(0), BAD,"
    " c_uint64(0)), (kept, MIB, c_size_t(0), physical, c_uint64(1)), (plain, MIB, c_size_t(0),"
    " physical, c_uint64(0)), (c_uint64(kept.value + 4096), MIB, c_size_t(0), physical,"
    " c_uint64(0)))",
    "('cuMemUnmap', (NULL, MIB), (BAD, MIB), (kept, MIB), (kept, c_size_t(0)), (kept, BIG),"
    " (plain, MIB))",
    "('cuMemSetAccess', (NULL, MIB, byref(access), c_size_t(1)), (kept, MIB, byref(access),"
    " c_size_t(1)), (there, MIB, NULL, c_size_t(1)), (there, MIB, byref(access), c_size_t(0)),"
    " (there, MIB, byref(no_access), c_size_t(1)), (there, BIG, byref(access), c_size_t(1)),"
    " (there, c_size_t(0), byref(access), c_size_t(1)), (there, MIB, byref(odd), c_size_t(1)),"
    " (there, c_size_t(4096), byref(access), c_size_t(1)))",
    "('cuMemGetAccess', (NULL, byref(here), there), (out, NULL, there), (out, byref(nowhere),"
    " there), (out, byref(here), kept), (out, byref(here), BAD), (out, byref(here), plain))",
    "('cuMemRetainAllocationHandle', (NULL, there), (out, NULL), (out, BAD), (out, kept),"
    " (out, plain))",
    "('cuMemGetAllocationPropertiesFromHandle', (NULL, physical), (out, NULL), (out, BAD),"
    " (out, stale))",
    "('cuMemExportToShareableHandle', (NULL, physical, c_int(1), c_uint64(0)), (out, BAD, c_int(1),"
    " c_uint64(0)), (out, physical, c_int(1), c_uint64(0)), (out, physical, c_int(8), c_uint64(0)),"
    " (out, physical, c_int(1), c_uint64(1)))",
    "('cuMemImportFromShareableHandle', (NULL, NULL, c_int(1)), (out, c_void_p(0), c_int(1)),"
    " (out, c_void_p(9999), c_int(1)), (out, BAD, c_int(8)), (out, c_void_p(2**64 - 1), c_int(1)))",
    "('cuMulticastCreate', (NULL, NULL), (out, zeros))",
)

VALUES = """
room = create_string_buffer(4096)   # of any outcome
own, out = c_void_p(addressof(room)), c_void_p(addressof(room))
zero_room = create_string_buffer(512)
zeros = c_void_p(addressof(zero_room))
numbers = (c_uint64 * 8)(1, 2, 1, 99, 4, 0, addressof(room), 0)
more = (c_uint64 * 3)(plain.value, managed.value, 2**64 - 1)
devices, shared, all_bytes = (c_void_p(addressof(more) + 8 * index) for index in range(3))
per_thread = c_void_p(2)
in_order = cu.CUmemcpyAttributes()
in_order.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
fine = c_void_p(in_order.getPtr())
at = lambda index: c_void_p(addressof(numbers) + 8 * index)
one, two, kinds, unknown, sizes, nothing, outs = map(at, range(7))
here, nowhere = Location(1, 0), Location(1, 99)
access, no_access, odd = Access(here, 3), Access(nowhere, 3), Access(here, 77)
other = Handle((c_ubyte * 64)(*range(64)))
event = ok(cu.cuEventCreate(0))
pool = c_void_p(int(ok(cu.cuDeviceGetDefaultMemPool(0))))
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
vmm = c_void_p(prop.getPtr())
props = c_void_p(pool_props.getPtr())
physical, stale = (c_uint64(int(ok(cu.cuMemCreate(2 << 20, prop, 0)))) for _ in range(2))
ok(cu.cuMemRelease(stale.value))
there = c_uint64(int(ok(cu.cuMemAddressReserve(2 << 20, 0, 0, 0))))
ok(cu.cuMemMap(there.value, 2 << 20, 0, physical.value, 0))
ok(cu.cuMemPoolDestroy(int(stale_pool.value)))
freed = c_uint64(int(ok(cu.cuMemAlloc(4096))))
ok(cu.cuMemFree(freed.value))
"""
RUN = """
for name, *lists in [
%s
]:
    for index, arguments in enumerate(lists):
        print(json.dumps([name, index, getattr(libcuda, name)(*arguments)]), flush=True)
gpu.affine(word := gpu.word(2), 3, 1); ok(cu.cuCtxSynchronize())
print(json.dumps(["works", 0, gpu.read(word)[0]]))
"""


@pytest.mark.parametrize(
    "rows",
    [MEMORY, MANAGED, BATCHES, POOLS, IPC, VMM],
    ids=["memory", "managed", "batches", "pools", "ipc", "vmm"],
)
def test_bad_arguments_are_errors_and_nothing_worse(gpu, rows):
    *answers, last = map(json.loads, gpu.run(BEGIN + VALUES + RUN % rows).splitlines())

    assert last == ["works", 0, 7]
    assert len(answers) > 10
    codes = {(name, index): code for name, index, code in answers}
    missing = {name for (name, _), code in codes.items() if code == 801}
    assert missing <= {"cuMulticastCreate", "cuPointerGetAttribute"}  # the latter for P2P tokens
    # Each is refused because of the argument: the device is not lost, and every call was
    # understood.
    assert {call: code for call, code in codes.items() if code in (0, 46, 719, 700, 999)} == {}


def test_the_older_batch_of_copies_tells_which_one_is_bad(gpu):
    program = """
failed = (c_uint64 * 1)(7)
to = (c_uint64 * 2)(plain.value, BAD.value)
both = (c_uint64 * 2)(plain.value + 64, plain.value + 64)
four = (c_uint64 * 2)(4, 2**64 - 1)
run = lambda count: libcuda.cuMemcpyBatchAsync(
    to, both, four, c_size_t(count), fine, zeros, c_size_t(1), failed, per_thread)
print(run(1), failed[0] == 2**64 - 1, run(2), failed[0], run(0), failed[0] == 2**64 - 1)
"""
    assert gpu.run(BEGIN + VALUES + program) == "0 True 1 1 1 True"
