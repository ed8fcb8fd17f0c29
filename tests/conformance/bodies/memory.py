"""Linear and host memory: copies, memsets, attributes."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver as cu
from gpu import Gpu, address, ok, refused, u32


def a_pageable_source_may_change_after_the_call():
    gpu = Gpu()
    stream, word, copy = ok(cu.cuStreamCreate(1)), gpu.word(0), gpu.word(0)
    host = u32(42)
    gpu.affine(word, 1, 1, stream=stream, slow=True)
    ok(cu.cuMemcpyHtoDAsync(copy, address(host), 4, stream))
    host[0] = 99
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(copy) == [42]


def a_pinned_source_is_read_when_the_copy_runs():
    gpu = Gpu()
    stream, word, copy = ok(cu.cuStreamCreate(1)), gpu.word(0), gpu.word(0)
    pinned = ok(cu.cuMemHostAlloc(4096, 0))
    view = (ctypes.c_uint * 1).from_address(pinned)
    view[0] = 42
    gpu.affine(word, 1, 1, stream=stream, slow=True)
    ok(cu.cuMemcpyHtoDAsync(copy, pinned, 4, stream))
    view[0] = 99
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(copy) == [99]
    ok(cu.cuMemFreeHost(pinned))


def memsets_write_each_width():
    gpu = Gpu()
    data = ok(cu.cuMemAlloc(16))
    ok(cu.cuMemsetD8(data, 0x11, 16))
    ok(cu.cuMemsetD16(int(data) + 4, 0x2222, 2))
    ok(cu.cuMemsetD32(int(data) + 8, 0x33333333, 1))
    assert gpu.read(data, 4) == [0x11111111, 0x22222222, 0x33333333, 0x11111111]
    assert refused(cu.cuMemsetD32(int(data) + 2, 0, 1)) == "INVALID_VALUE"


def pointers_tell_what_they_are():
    gpu = Gpu()
    data = ok(cu.cuMemAlloc(1000))
    base, size = ok(cu.cuMemGetAddressRange(int(data) + 500))
    assert (int(base), size) == (int(data), 1000)
    which = cu.CUpointer_attribute
    kind, host = which.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, u32(0)
    assert ok(cu.cuPointerGetAttribute(kind, data)) == cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    pinned = ok(cu.cuMemHostAlloc(64, 0))
    assert ok(cu.cuPointerGetAttribute(kind, pinned)) == cu.CUmemorytype.CU_MEMORYTYPE_HOST
    ordinal = which.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert ok(cu.cuPointerGetAttribute(ordinal, data)) == int(gpu.device)
    assert refused(cu.cuPointerGetAttribute(kind, address(host))) == "INVALID_VALUE"


def freed_memory_is_free_again():
    Gpu()
    before = ok(cu.cuMemGetInfo())[0]
    data = ok(cu.cuMemAlloc(256 << 20))
    assert before - ok(cu.cuMemGetInfo())[0] >= 256 << 20
    ok(cu.cuMemFree(data))
    assert ok(cu.cuMemGetInfo())[0] == before
    assert refused(cu.cuMemFree(data)) == "INVALID_VALUE"


def memory_is_freed_whichever_context_is_current_or_none():
    Gpu()
    device_memory, pinned = ok(cu.cuMemAlloc(64)), ok(cu.cuMemHostAlloc(64, 0))
    more = ok(cu.cuMemAlloc(64))
    other = ok(cu.cuCtxCreate(None, 0, 0))
    ok(cu.cuMemFree(more))
    ok(cu.cuCtxDestroy(other))
    ok(cu.cuCtxSetCurrent(0))
    ok(cu.cuMemFree(device_memory))
    ok(cu.cuMemFreeHost(pinned))
    assert refused(cu.cuMemFree(device_memory)) == "INVALID_VALUE"
    assert refused(cu.cuMemAlloc(64)) == "INVALID_CONTEXT"


def a_plain_memset_of_pinned_memory_has_ended_when_it_returns():
    gpu = Gpu()
    word, pinned = gpu.word(0), ok(cu.cuMemHostAlloc(64, cu.CU_MEMHOSTALLOC_DEVICEMAP))
    gpu.affine(word, 1, 1, slow=True)  # the memset follows it in the default stream
    ok(cu.cuMemsetD32(pinned, 7, 16))
    assert list((ctypes.c_uint * 16).from_address(pinned)) == [7] * 16
    ok(cu.cuMemFreeHost(pinned))


def a_profiler_starts_and_stops_in_any_order():
    Gpu()
    for call in (cu.cuProfilerStop, cu.cuProfilerStart, cu.cuProfilerStop):
        ok(call())


def registered_memory_cannot_be_registered_again_in_part_or_as_a_whole():
    Gpu()
    page = 4096
    room = ctypes.create_string_buffer(8 * page)
    begin = -(-ctypes.addressof(room) // page) * page
    ok(cu.cuMemHostRegister(begin + page, 2 * page, 0))
    for first, pages in ((1, 2), (1, 1), (2, 1), (0, 2), (2, 2), (0, 4)):
        again = cu.cuMemHostRegister(begin + first * page, pages * page, 0)
        assert refused(again) == "HOST_MEMORY_ALREADY_REGISTERED", (first, pages)
    ok(cu.cuMemHostUnregister(begin + page))
    ok(cu.cuMemHostRegister(begin, 4 * page, 0))
    ok(cu.cuMemHostUnregister(begin))
    assert refused(cu.cuMemHostUnregister(begin)) == "HOST_MEMORY_NOT_REGISTERED"


def pointers_of_each_kind_tell_their_attributes():
    Gpu()
    which = cu.CUpointer_attribute
    data, other = ok(cu.cuMemAlloc(1 << 20)), ok(cu.cuMemAlloc(1 << 20))

    def tells(attribute, pointer=data):
        name = getattr(which, f"CU_POINTER_ATTRIBUTE_{attribute}")
        return int(ok(cu.cuPointerGetAttribute(name, pointer)))

    assert tells("RANGE_START_ADDR", int(data) + 5) == int(data)
    assert tells("RANGE_SIZE") == 1 << 20
    assert (tells("MAPPED"), tells("IS_MANAGED"), tells("MEMPOOL_HANDLE")) == (1, 0, 0)
    assert tells("IS_LEGACY_CUDA_IPC_CAPABLE") == 1
    assert tells("ALLOWED_HANDLE_TYPES") == 0
    assert tells("ACCESS_FLAGS") == 3  # read and write
    assert tells("BUFFER_ID") != tells("BUFFER_ID", other)
    assert tells("BUFFER_ID") == tells("BUFFER_ID", int(data) + 5)
    pooled = ok(cu.cuMemAllocAsync(4096, 0))
    assert tells("MEMPOOL_HANDLE", pooled) == int(ok(cu.cuDeviceGetDefaultMemPool(0)))
    assert tells("IS_LEGACY_CUDA_IPC_CAPABLE", pooled) == 0


def a_copy_of_memory_that_asks_for_it_has_ended_when_it_returns():
    gpu = Gpu()
    sync = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    word, copy, done = gpu.word(2), gpu.word(0), ok(cu.cuEventCreate(0))
    assert not ok(cu.cuPointerGetAttribute(sync, copy))
    ok(cu.cuPointerSetAttribute(1, sync, copy))
    assert ok(cu.cuPointerGetAttribute(sync, copy))
    gpu.affine(word, 3, 1, slow=True)
    ok(cu.cuEventRecord(done, 0))
    ok(cu.cuMemcpyDtoD(copy, word, 4))
    ok(cu.cuEventQuery(done))
    gpu.affine(word, 3, 1, slow=True)
    ok(cu.cuEventRecord(done, 0))
    ok(cu.cuMemsetD32(copy, 5, 1))
    ok(cu.cuEventQuery(done))
    assert gpu.read(copy) == [5]
    kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    assert refused(cu.cuPointerSetAttribute(1, kind, copy)) == "INVALID_VALUE"
