"""Memory pools: allocation and free in stream order."""

from __future__ import annotations

from cuda.bindings import driver as cu
from gpu import Gpu, ok, refused

ATTRIBUTE = cu.CUmemPool_attribute
MIB = 1 << 20


def _pool(*, shared=False, device=0):
    props = cu.CUmemPoolProps()
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    props.location.id = device
    if shared:
        handle_type = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        props.handleTypes = handle_type
    return ok(cu.cuMemPoolCreate(props))


def _get(pool, name: str) -> int:
    return int(ok(cu.cuMemPoolGetAttribute(pool, getattr(ATTRIBUTE, f"CU_MEMPOOL_ATTR_{name}"))))


def _set(pool, name: str, value: int):
    kind = int if name.startswith("REUSE") else cu.cuuint64_t
    attribute = getattr(ATTRIBUTE, f"CU_MEMPOOL_ATTR_{name}")
    return cu.cuMemPoolSetAttribute(pool, attribute, kind(value))


def _keep(pool) -> None:
    ok(_set(pool, "RELEASE_THRESHOLD", (1 << 64) - 1))


def memory_is_usable_in_stream_order():
    gpu = Gpu()
    stream = ok(cu.cuStreamCreate(1))
    data = ok(cu.cuMemAllocAsync(4, stream))
    ok(cu.cuMemsetD32Async(data, 5, 1, stream))
    gpu.affine(data, 3, 1, stream=stream, slow=True)
    copy = gpu.word(0)
    ok(cu.cuMemcpyDtoDAsync(copy, data, 4, stream))
    ok(cu.cuMemFreeAsync(data, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(copy) == [16]


def every_device_has_a_default_pool_that_is_current():
    gpu = Gpu()
    default = ok(cu.cuDeviceGetDefaultMemPool(gpu.device))
    assert int(ok(cu.cuDeviceGetMemPool(gpu.device))) == int(default)
    for name in ("FOLLOW_EVENT_DEPENDENCIES", "ALLOW_OPPORTUNISTIC", "ALLOW_INTERNAL_DEPENDENCIES"):
        assert _get(default, f"REUSE_{name}") == 1
    assert _get(default, "RELEASE_THRESHOLD") == 0
    assert refused(cu.cuMemPoolDestroy(default)) == "INVALID_VALUE"
    pool = _pool()
    ok(cu.cuDeviceSetMemPool(gpu.device, pool))
    data = ok(cu.cuMemAllocAsync(1000, 0))
    assert _get(pool, "USED_MEM_CURRENT") >= 1000
    assert _get(default, "USED_MEM_CURRENT") == 0
    ok(cu.cuMemFreeAsync(data, 0))
    ok(cu.cuMemPoolDestroy(pool))
    assert int(ok(cu.cuDeviceGetMemPool(gpu.device))) == int(default)


def used_and_reserved_memory_are_counted_with_their_high_marks():
    Gpu()
    pool = _pool()
    _keep(pool)
    data = ok(cu.cuMemAllocFromPoolAsync(8 * MIB, pool, 0))
    assert _get(pool, "USED_MEM_CURRENT") == 8 * MIB
    assert _get(pool, "RESERVED_MEM_CURRENT") >= 8 * MIB
    ok(cu.cuMemFreeAsync(data, 0))
    ok(cu.cuStreamSynchronize(0))
    assert _get(pool, "USED_MEM_CURRENT") == 0
    assert _get(pool, "USED_MEM_HIGH") == 8 * MIB
    assert _get(pool, "RESERVED_MEM_CURRENT") >= 8 * MIB
    assert refused(_set(pool, "USED_MEM_HIGH", 1)) == "INVALID_VALUE"
    ok(_set(pool, "USED_MEM_HIGH", 0))
    assert _get(pool, "USED_MEM_HIGH") == 0
    ok(cu.cuMemPoolTrimTo(pool, 0))
    assert _get(pool, "RESERVED_MEM_CURRENT") == 0
    assert _get(pool, "RESERVED_MEM_HIGH") >= 8 * MIB
    ok(cu.cuMemPoolDestroy(pool))


def memory_over_the_release_threshold_goes_at_a_synchronisation():
    Gpu()
    pool = _pool()
    data = ok(cu.cuMemAllocFromPoolAsync(64 * MIB, pool, 0))
    ok(cu.cuMemFreeAsync(data, 0))
    ok(cu.cuStreamSynchronize(0))
    assert _get(pool, "RESERVED_MEM_CURRENT") == 0
    _keep(pool)
    data = ok(cu.cuMemAllocFromPoolAsync(64 * MIB, pool, 0))
    ok(cu.cuMemFreeAsync(data, 0))
    ok(cu.cuCtxSynchronize())
    assert _get(pool, "RESERVED_MEM_CURRENT") >= 64 * MIB
    ok(cu.cuMemPoolDestroy(pool))


def memory_freed_in_a_stream_is_used_again_there():
    gpu = Gpu()
    stream, pool = ok(cu.cuStreamCreate(1)), _pool()
    busy = gpu.word(1)
    first = ok(cu.cuMemAllocFromPoolAsync(MIB, pool, stream))
    gpu.affine(busy, 1, 1, stream=stream, slow=True)
    ok(cu.cuMemFreeAsync(first, stream))
    second = ok(cu.cuMemAllocFromPoolAsync(MIB, pool, stream))
    assert int(second) == int(first)
    assert ok(cu.cuMemFreeAsync(second, stream)) == ()
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuMemPoolDestroy(pool))


def an_event_orders_a_free_before_an_allocation_elsewhere():
    gpu = Gpu()
    one, two = (ok(cu.cuStreamCreate(1)) for _ in range(2))
    pool, busy, event = _pool(), gpu.word(1), ok(cu.cuEventCreate(2))
    ok(_set(pool, "REUSE_ALLOW_OPPORTUNISTIC", 0))
    ok(_set(pool, "REUSE_ALLOW_INTERNAL_DEPENDENCIES", 0))
    first = ok(cu.cuMemAllocFromPoolAsync(MIB, pool, one))
    gpu.affine(busy, 1, 1, stream=one, slow=True)
    ok(cu.cuMemFreeAsync(first, one))
    other = ok(cu.cuMemAllocFromPoolAsync(MIB, pool, two))
    assert int(other) != int(first)
    ok(cu.cuEventRecord(event, one))
    ok(cu.cuStreamWaitEvent(two, event, 0))
    again = ok(cu.cuMemAllocFromPoolAsync(MIB, pool, two))
    assert int(again) == int(first)
    for data in (other, again):
        ok(cu.cuMemFreeAsync(data, two))
    ok(cu.cuCtxSynchronize())
    ok(cu.cuMemPoolDestroy(pool))


def memory_of_every_kind_is_freed_by_either_call():
    gpu = Gpu()
    before = ok(cu.cuMemGetInfo())[0]
    stream = ok(cu.cuStreamCreate(1))
    pooled = ok(cu.cuMemAllocAsync(4 * MIB, stream))
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuMemFree(pooled))
    linear, copy = ok(cu.cuMemAlloc(4 * MIB)), gpu.word(0)
    ok(cu.cuMemsetD32Async(linear, 7, 1, stream))
    gpu.affine(linear, 2, 0, stream=stream, slow=True)
    ok(cu.cuMemcpyDtoDAsync(copy, linear, 4, stream))
    ok(cu.cuMemFreeAsync(linear, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(copy) == [14]
    ok(cu.cuMemFree(copy))
    assert ok(cu.cuMemGetInfo())[0] == before


def a_destroyed_pool_lives_until_its_memory_is_freed():
    gpu = Gpu()
    pool = _pool()
    data = ok(cu.cuMemAllocFromPoolAsync(4, pool, 0))
    ok(cu.cuMemPoolDestroy(pool))
    ok(cu.cuMemsetD32Async(data, 9, 1, 0))
    assert gpu.read(data) == [9]
    ok(cu.cuMemFreeAsync(data, 0))
    ok(cu.cuStreamSynchronize(0))


def pointers_name_their_pool():
    gpu = Gpu()
    pool = _pool()
    which = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    data = ok(cu.cuMemAllocFromPoolAsync(64, pool, 0))
    assert int(ok(cu.cuPointerGetAttribute(which, data))) == int(pool)
    assert int(ok(cu.cuPointerGetAttribute(which, gpu.word(0)))) == 0
    ok(cu.cuMemFreeAsync(data, 0))
    ok(cu.cuStreamSynchronize(0))
    ok(cu.cuMemPoolDestroy(pool))


def what_a_pool_cannot_give_is_refused():
    Gpu()
    pool, stream = _pool(), ok(cu.cuStreamCreate(1))
    assert refused(cu.cuMemAllocFromPoolAsync(1 << 60, pool, stream)) == "OUT_OF_MEMORY"
    current = ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    assert refused(cu.cuMemPoolSetAttribute(pool, current, cu.cuuint64_t(0))) == "INVALID_VALUE"
    data = ok(cu.cuMemAllocFromPoolAsync(64, pool, stream))
    ok(cu.cuMemFreeAsync(data, stream))
    assert refused(cu.cuMemFreeAsync(data, stream)) == "INVALID_VALUE"
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuMemPoolDestroy(pool))
    props = cu.CUmemPoolProps()
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    assert refused(cu.cuMemPoolCreate(props)) == "INVALID_VALUE"
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.id = 99
    assert refused(cu.cuMemPoolCreate(props)) in ("INVALID_VALUE", "INVALID_DEVICE")
