"""Physical memory that is mapped."""

from __future__ import annotations

from cuda.bindings import driver as cu
from gpu import Gpu, ok


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
