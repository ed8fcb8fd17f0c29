"""Two devices of one process."""

from __future__ import annotations

from cuda.bindings import driver as cu
from gpu import Gpu, NothingToTest, ok, refused


def _two() -> tuple[Gpu, object]:
    """The first device with its kernels, current, and a context of the second."""
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
