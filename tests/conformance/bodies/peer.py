"""Two devices in one process."""

from __future__ import annotations

import os
from pathlib import Path

from cuda.bindings import driver as cu
from gpu import Gpu, NothingToTest, ok, refused


def _two() -> tuple[Gpu, object]:
    """Return the first device, current and with its kernels, and a context of the second."""
    ok(cu.cuInit(0))
    if ok(cu.cuDeviceGetCount()) < 2:
        raise NothingToTest("needs two devices")
    other = ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(1))))
    return Gpu(), other


def _word_on(context, value: int):
    ok(cu.cuCtxPushCurrent(context))
    word = ok(cu.cuMemAlloc(4))
    ok(cu.cuMemsetD32(word, value, 1))
    ok(cu.cuCtxSynchronize())
    ok(cu.cuCtxPopCurrent())
    return word


def devices_are_apart():
    gpu, other = _two()
    free = ok(cu.cuMemGetInfo())[0]
    ok(cu.cuCtxPushCurrent(other))
    data = ok(cu.cuMemAlloc(64 << 20))
    ordinal = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert ok(cu.cuPointerGetAttribute(ordinal, data)) == 1
    ok(cu.cuCtxPopCurrent())
    assert ok(cu.cuMemGetInfo())[0] == free
    one, two = (bytes(ok(cu.cuDeviceGetUuid(d)).bytes) for d in (0, 1))
    assert one != two
    assert ok(cu.cuDeviceCanAccessPeer(gpu.device, gpu.device)) == 0


def copies_cross_between_devices_in_stream_order():
    gpu, other = _two()
    stream = ok(cu.cuStreamCreate(1))
    here, there = gpu.word(20), _word_on(other, 0)
    gpu.affine(here, 2, 2, stream=stream, slow=True)
    ok(cu.cuMemcpyPeerAsync(there, other, here, gpu.context, 4, stream))
    ok(cu.cuMemsetD32Async(here, 0, 1, stream))
    ok(cu.cuMemcpyPeerAsync(here, gpu.context, there, other, 4, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(here) == [42]


def peer_access_is_enabled_once_and_disabled_once():
    gpu, other = _two()
    if not ok(cu.cuDeviceCanAccessPeer(gpu.device, 1)):
        raise NothingToTest("the devices cannot access each other")
    supported = cu.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
    assert ok(cu.cuDeviceGetP2PAttribute(supported, 0, 1)) == 1
    assert refused(cu.cuDeviceGetP2PAttribute(supported, 0, 0)) == "INVALID_DEVICE"
    assert refused(cu.cuCtxDisablePeerAccess(other)) == "PEER_ACCESS_NOT_ENABLED"
    assert refused(cu.cuCtxEnablePeerAccess(other, 1)) == "INVALID_VALUE"
    assert refused(cu.cuCtxEnablePeerAccess(gpu.context, 0)) == "INVALID_CONTEXT"
    ok(cu.cuCtxEnablePeerAccess(other, 0))
    assert refused(cu.cuCtxEnablePeerAccess(other, 0)) == "PEER_ACCESS_ALREADY_ENABLED"
    theirs = _word_on(other, 20)
    gpu.affine(theirs, 2, 2)
    ok(cu.cuCtxSynchronize())
    assert gpu.read(theirs) == [42]
    ok(cu.cuCtxDisablePeerAccess(other))
    assert refused(cu.cuCtxDisablePeerAccess(other)) == "PEER_ACCESS_NOT_ENABLED"


def a_kernel_without_peer_access_faults_and_only_its_own_context_with_it():
    gpu, other = _two()
    theirs = _word_on(other, 20)
    gpu.affine(theirs, 2, 2)
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
    ok(cu.cuCtxSetCurrent(other))
    assert gpu.read(theirs) == [20]
    ok(cu.cuMemFree(theirs))


def peer_access_ends_when_it_is_disabled():
    gpu, other = _two()
    theirs = _word_on(other, 20)
    ok(cu.cuCtxEnablePeerAccess(other, 0))
    gpu.affine(theirs, 2, 2)
    ok(cu.cuCtxSynchronize())
    ok(cu.cuCtxDisablePeerAccess(other))
    gpu.affine(theirs, 2, 2)
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"


def peer_access_has_a_direction():
    gpu, other = _two()
    ok(cu.cuCtxEnablePeerAccess(other, 0))
    mine = gpu.word(1)
    ok(cu.cuCtxSetCurrent(other))
    gpu.module = ok(cu.cuModuleLoadData(Path(os.environ["TEST_IMAGE"]).read_bytes()))
    gpu.affine(mine, 2, 2)
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"


def copies_and_memsets_need_no_peer_access():
    gpu, other = _two()
    here, there = gpu.word(7), _word_on(other, 0)
    ok(cu.cuMemcpyDtoD(there, here, 4))
    ok(cu.cuMemcpyPeer(here, gpu.context, there, other, 4))
    gpu.affine(here, 6, 0)
    ok(cu.cuMemcpyDtoD(there, here, 4))
    assert gpu.read(there) == [42]


def _pool_access(pool, flags) -> None:
    desc = cu.CUmemAccessDesc()
    desc.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    desc.location.id = 0
    desc.flags = flags
    ok(cu.cuMemPoolSetAccess(pool, [desc], 1))


def memory_of_a_pool_is_reached_by_whom_the_pool_names():
    gpu, other = _two()
    flags = cu.CUmemAccess_flags
    pool = ok(cu.cuDeviceGetDefaultMemPool(1))
    ok(cu.cuCtxPushCurrent(other))
    stream = ok(cu.cuStreamCreate(1))
    word = ok(cu.cuMemAllocFromPoolAsync(4, pool, stream))
    ok(cu.cuMemsetD32Async(word, 20, 1, stream))
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuCtxPopCurrent())
    _pool_access(pool, flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    gpu.affine(word, 2, 2)
    assert gpu.read(word) == [42]
    _pool_access(pool, flags.CU_MEM_ACCESS_FLAGS_PROT_NONE)
    ok(cu.cuCtxEnablePeerAccess(other, 0))  # has no effect on pools
    gpu.affine(word, 2, 2)
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"


def mapped_memory_is_reached_by_devices_that_were_given_access():
    gpu, other = _two()
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 1
    size = ok(cu.cuMemGetAllocationGranularity(prop, cu.CUmemAllocationGranularity_flags(0)))
    at, handle = ok(cu.cuMemAddressReserve(size, 0, 0, 0)), ok(cu.cuMemCreate(size, prop, 0))
    ok(cu.cuMemMap(at, size, 0, handle, 0))
    descs = [cu.CUmemAccessDesc() for _ in range(2)]
    for device, desc in enumerate(descs):
        desc.location.type = prop.location.type
        desc.location.id = device
        desc.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemSetAccess(at, size, descs, 2))
    ok(cu.cuMemsetD32(at, 20, 1))
    gpu.affine(at, 2, 2)
    assert gpu.read(at) == [42]
    descs[0].flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
    ok(cu.cuMemSetAccess(at, size, descs[:1], 1))
    ok(cu.cuCtxEnablePeerAccess(other, 0))  # has no effect on mappings
    gpu.affine(at, 2, 2)
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
