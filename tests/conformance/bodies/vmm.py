"""Physical memory that is mapped to addresses."""

from __future__ import annotations

from cuda.bindings import driver as cu
from gpu import Gpu, ok, refused


def _physical(bytes_):
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 0
    unit = ok(cu.cuMemGetAllocationGranularity(prop, cu.CUmemAllocationGranularity_flags(0)))
    assert bytes_ % unit == 0
    return ok(cu.cuMemCreate(bytes_, prop, 0))


def _map(at, bytes_, handle):
    ok(cu.cuMemMap(at, bytes_, 0, handle, 0))
    access = cu.CUmemAccessDesc()
    access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemSetAccess(at, bytes_, [access], 1))


def physical_memory_keeps_its_bytes_when_it_is_mapped_elsewhere():
    gpu = Gpu()
    size = 4 << 20
    here, there = (ok(cu.cuMemAddressReserve(size, 0, 0, 0)) for _ in range(2))
    handle = _physical(size)
    _map(here, size, handle)
    ok(cu.cuMemsetD32(here, 7, size // 4))
    ok(cu.cuCtxSynchronize())
    ok(cu.cuMemUnmap(here, size))
    _map(there, size, handle)
    assert gpu.read(int(there) + size - 8, 2) == [7, 7]
    ok(cu.cuMemUnmap(there, size))
    ok(cu.cuMemRelease(handle))
    for at in (here, there):
        ok(cu.cuMemAddressFree(at, size))


def _device(id_=0):
    location = cu.CUmemLocation()
    location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = id_
    return location


def access_is_told_as_it_was_set():
    Gpu()
    size = 2 << 20
    at = ok(cu.cuMemAddressReserve(size, 0, 0, 0))
    handle = _physical(size)
    assert refused(cu.cuMemGetAccess(_device(), at)) == "INVALID_VALUE"  # nothing is mapped there
    ok(cu.cuMemMap(at, size, 0, handle, 0))
    assert ok(cu.cuMemGetAccess(_device(), at)) == 0
    access = cu.CUmemAccessDesc()
    access.location = _device()
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemSetAccess(at, size, [access], 1))
    assert ok(cu.cuMemGetAccess(_device(), int(at) + 4096)) == 3
    ok(cu.cuMemUnmap(at, size))
    ok(cu.cuMemRelease(handle))
    ok(cu.cuMemAddressFree(at, size))


def a_mapping_begins_at_the_beginning_of_memory_and_ends_as_a_whole():
    Gpu()
    unit = 2 << 20
    at, handle = int(ok(cu.cuMemAddressReserve(2 * unit, 0, 0, 0))), _physical(2 * unit)
    assert refused(cu.cuMemMap(at, unit, unit, handle, 0)) == "INVALID_VALUE"
    ok(cu.cuMemMap(at, 2 * unit, 0, handle, 0))
    assert refused(cu.cuMemMap(at, 2 * unit, 0, handle, 0)) == "INVALID_VALUE"
    assert refused(cu.cuMemUnmap(at, unit)) == "INVALID_VALUE"
    assert refused(cu.cuMemAddressFree(at, 2 * unit)) == "INVALID_VALUE"
    ok(cu.cuMemUnmap(at, 2 * unit))
    ok(cu.cuMemRelease(handle))
    ok(cu.cuMemAddressFree(at, 2 * unit))


def a_handle_is_the_same_again_and_is_released_as_often():
    Gpu()
    size = 2 << 20
    at, handle = ok(cu.cuMemAddressReserve(size, 0, 0, 0)), _physical(size)
    _map(at, size, handle)
    again = ok(cu.cuMemRetainAllocationHandle(int(at) + 4096))
    assert int(again) == int(handle)
    ok(cu.cuMemRelease(handle))
    prop = ok(cu.cuMemGetAllocationPropertiesFromHandle(again))
    assert prop.type == cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    ok(cu.cuMemRelease(again))
    ok(cu.cuMemUnmap(at, size))
    assert refused(cu.cuMemRetainAllocationHandle(at)) == "INVALID_VALUE"
    ok(cu.cuMemAddressFree(at, size))


def a_pointer_into_a_mapping_tells_of_it():
    Gpu()
    unit, which = 2 << 20, cu.CUpointer_attribute
    at, handle = int(ok(cu.cuMemAddressReserve(2 * unit, 0, 0, 0))), _physical(unit)
    _map(at, unit, handle)
    inside = at + 4096
    for attribute, value in {
        which.CU_POINTER_ATTRIBUTE_MAPPED: 1,
        which.CU_POINTER_ATTRIBUTE_RANGE_SIZE: 2 * unit,
        which.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: at,
        which.CU_POINTER_ATTRIBUTE_MAPPING_SIZE: unit,
        which.CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: at,
        which.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: 0,
    }.items():
        try:
            said = cu.cuPointerGetAttribute(attribute, inside)
        except TypeError:  # cuda.bindings 13.0 cannot ask for MAPPING_SIZE
            continue
        assert int(ok(said)) == value, attribute
    ok(cu.cuMemUnmap(at, unit))
    ok(cu.cuMemRelease(handle))
    ok(cu.cuMemAddressFree(at, 2 * unit))


def a_kernel_that_touches_memory_without_access_fails():
    gpu = Gpu()
    size = 2 << 20
    at, handle = ok(cu.cuMemAddressReserve(size, 0, 0, 0)), _physical(size)
    ok(cu.cuMemMap(at, size, 0, handle, 0))
    gpu.affine(at, 3, 1)
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
