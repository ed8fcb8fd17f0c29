"""Managed memory: the host can access it, and advice on its placement is remembered."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver as cu
from gpu import Gpu, NothingToTest, ok, refused

ADVISE, RANGE = cu.CUmem_advise, cu.CUmem_range_attribute
GLOBAL = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
PAGE = 2 << 20


def _gpu() -> Gpu:
    gpu = Gpu()
    wanted = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
    if not ok(cu.cuDeviceGetAttribute(wanted, gpu.device)):
        raise NothingToTest("no concurrent managed access")
    return gpu


def _on_device():
    location = cu.CUmemLocation()
    location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return location


def host_and_device_see_the_same_bytes():
    gpu = _gpu()
    data = ok(cu.cuMemAllocManaged(PAGE, GLOBAL.value))
    host = (ctypes.c_uint * 2).from_address(int(data))
    host[0] = 20
    gpu.affine(data, 2, 2)
    ok(cu.cuCtxSynchronize())
    assert host[0] == 42
    which = cu.CUpointer_attribute
    assert ok(cu.cuPointerGetAttribute(which.CU_POINTER_ATTRIBUTE_IS_MANAGED, data))
    assert refused(cu.cuMemAllocManaged(PAGE, 0)) == "INVALID_VALUE"
    assert refused(cu.cuMemAllocManaged(0, GLOBAL.value)) == "INVALID_VALUE"
    ok(cu.cuMemFree(data))


def advice_holds_for_its_part_of_the_range():
    _gpu()
    data, size = int(ok(cu.cuMemAllocManaged(2 * PAGE, GLOBAL.value))), 2 * PAGE
    mostly = RANGE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
    preferred = RANGE.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION
    ok(cu.cuMemAdvise(data, PAGE, ADVISE.CU_MEM_ADVISE_SET_READ_MOSTLY, _on_device()))
    assert ok(cu.cuMemRangeGetAttribute(4, mostly, data, PAGE)) == 1
    assert ok(cu.cuMemRangeGetAttribute(4, mostly, data, size)) == 0
    ok(cu.cuMemAdvise(data, size, ADVISE.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, _on_device()))
    assert ok(cu.cuMemRangeGetAttribute(4, preferred, data, size)) == 0
    ok(cu.cuMemAdvise(data, size, ADVISE.CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, _on_device()))
    assert ok(cu.cuMemRangeGetAttribute(4, preferred, data, size)) == -2
    plain = ok(cu.cuMemAlloc(4096))
    advice = ADVISE.CU_MEM_ADVISE_SET_READ_MOSTLY
    assert refused(cu.cuMemAdvise(plain, 4096, advice, _on_device())) == "INVALID_VALUE"
    ok(cu.cuMemFree(data))


def a_prefetch_is_remembered():
    _gpu()
    stream = ok(cu.cuStreamCreate(1))
    data = ok(cu.cuMemAllocManaged(PAGE, GLOBAL.value))
    last = RANGE.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    assert ok(cu.cuMemRangeGetAttribute(4, last, data, PAGE)) == -2
    ok(cu.cuMemPrefetchAsync(data, PAGE, _on_device(), 0, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert ok(cu.cuMemRangeGetAttribute(4, last, data, PAGE)) == 0
    nowhere = _on_device()
    nowhere.id = 99
    assert refused(cu.cuMemPrefetchAsync(data, PAGE, nowhere, 0, stream)) == "INVALID_DEVICE"
    ok(cu.cuMemFree(data))
