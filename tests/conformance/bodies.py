"""What the driver API promises, each promise once, runnable on any device.

    TEST_IMAGE=kernels.so python bodies.py NAME

Every function here is one conformance test; test_conformance.py runs each in a process of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading

from cuda.bindings import driver as cu
from gpu import NOT_READY, Gpu, address, ok, outside, refused, u32


def the_device_describes_itself():
    ok(cu.cuInit(0))
    assert ok(cu.cuDeviceGetCount()) >= 1
    assert ok(cu.cuDriverGetVersion()) >= 12000
    device = ok(cu.cuDeviceGet(0))
    assert ok(cu.cuDeviceGetName(64, device)).strip(b"\0 ")
    assert any(ok(cu.cuDeviceGetUuid(device)).bytes)
    assert ok(cu.cuDeviceTotalMem(device)) > 0
    attribute = cu.CUdevice_attribute
    for name, least in (
        ("WARP_SIZE", 32),
        ("MULTIPROCESSOR_COUNT", 1),
        ("UNIFIED_ADDRESSING", 1),
        ("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", 1),
        ("CAN_MAP_HOST_MEMORY", 1),
        ("STREAM_PRIORITIES_SUPPORTED", 1),
    ):
        which = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        assert ok(cu.cuDeviceGetAttribute(which, device)) >= least, name


def wrong_arguments_give_the_documented_errors():
    assert refused(cu.cuDeviceGetCount()) == "NOT_INITIALIZED"
    assert refused(cu.cuInit(1)) == "INVALID_VALUE"
    ok(cu.cuInit(0))
    assert refused(cu.cuDeviceGet(99)) == "INVALID_DEVICE"
    assert refused(cu.cuMemAlloc(16)) == "INVALID_CONTEXT"
    gpu = Gpu()
    assert refused(cu.cuMemAlloc(0)) == "INVALID_VALUE"
    assert refused(cu.cuModuleGetFunction(gpu.module, b"no_such_kernel")) == "NOT_FOUND"
    assert refused(cu.cuStreamCreate(99)) == "INVALID_VALUE"
    assert refused(cu.cuEventCreate(1 << 20)) == "INVALID_VALUE"
    assert refused(gpu.launch("count_up", (), (), block=2048)) == "INVALID_VALUE"
    assert refused(cu.cuMemAlloc(1 << 60)) == "OUT_OF_MEMORY"
    assert refused(cu.cuModuleLoadData(b"\0" * 256)) in (
        "NO_BINARY_FOR_GPU",
        "INVALID_IMAGE",
        "INVALID_PTX",
    )


def the_primary_context_is_shared_and_counted():
    gpu = Gpu()
    again = ok(cu.cuDevicePrimaryCtxRetain(gpu.device))
    assert int(again) == int(gpu.context)
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
    ok(cu.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
    ok(cu.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cu.cuDevicePrimaryCtxGetState(gpu.device))[1] == 0


def contexts_form_a_stack_in_each_thread():
    gpu = Gpu()
    made = ok(cu.cuCtxCreate(None, 0, gpu.device))
    assert int(ok(cu.cuCtxGetCurrent())) == int(made)
    assert int(ok(cu.cuCtxPopCurrent())) == int(made)
    assert int(ok(cu.cuCtxGetCurrent())) == int(gpu.context)
    ok(cu.cuCtxPushCurrent(made))
    seen = []
    other = threading.Thread(target=lambda: seen.append(int(ok(cu.cuCtxGetCurrent()))))
    other.start()
    other.join()
    assert seen == [0]
    ok(cu.cuCtxDestroy(made))
    assert int(ok(cu.cuCtxGetCurrent())) == int(gpu.context)


def a_kernel_computes_what_it_is_told():
    gpu = Gpu()
    n = 1000
    a, b = (ok(cu.cuMemAlloc(4 * n)) for _ in range(2))
    ones = u32(*[0x3F800000] * n)  # 1.0f
    ok(cu.cuMemcpyHtoD(a, address(ones), 4 * n))
    types = (None, None, None, ctypes.c_int)
    ok(gpu.launch("vadd", (a, a, b, n), types, grid=4, block=256))
    assert gpu.read(b, n) == [0x40000000] * n  # 2.0f


def threads_of_a_block_meet_at_a_barrier():
    gpu = Gpu()
    x, sums = ok(cu.cuMemAlloc(4 * 1024)), ok(cu.cuMemAlloc(16))
    numbers = u32(*range(1024))
    ok(cu.cuMemcpyHtoD(x, address(numbers), 4096))
    ok(gpu.launch("block_sums", (x, sums), (None, None), grid=4, block=256))
    assert gpu.read(sums, 4) == [sum(range(k * 256, k * 256 + 256)) for k in range(4)]


def parameters_of_all_sizes_arrive():
    gpu = Gpu()
    out = ok(cu.cuMemAlloc(8))
    types = (ctypes.c_char, ctypes.c_double, ctypes.c_short, None)
    ok(gpu.launch("mixed", (b"\x03", 0.5, -7, out), types))
    host = (ctypes.c_double * 1)()
    ok(cu.cuMemcpyDtoH(ctypes.addressof(host), out, 8))
    assert host[0] == -3.5
    function = gpu.function("mixed")
    assert [ok(cu.cuFuncGetParamInfo(function, i)) for i in range(4)] == [
        (0, 1),
        (8, 8),
        (16, 2),
        (24, 8),
    ]
    assert refused(cu.cuFuncGetParamInfo(function, 4)) == "INVALID_VALUE"


def a_stream_keeps_its_order():
    gpu = Gpu()
    stream = ok(cu.cuStreamCreate(1))
    word, expected = gpu.word(1), 1
    for i in range(50):
        gpu.affine(word, 3, i, stream=stream)
        expected = (expected * 3 + i) % 2**32
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(word) == [expected]


def an_event_orders_two_streams():
    gpu = Gpu()
    first, second = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(1))
    event, word = ok(cu.cuEventCreate(2)), gpu.word(1)
    gpu.affine(word, 1, 4, stream=first, slow=True)
    ok(cu.cuEventRecord(event, first))
    ok(cu.cuStreamWaitEvent(second, event, 0))
    gpu.affine(word, 10, 0, stream=second)
    ok(cu.cuStreamSynchronize(second))
    assert gpu.read(word) == [50]


def the_legacy_stream_waits_for_blocking_streams_and_they_for_it():
    gpu = Gpu()
    stream, word = ok(cu.cuStreamCreate(0)), gpu.word(1)
    gpu.affine(word, 1, 4, stream=stream, slow=True)
    gpu.affine(word, 10, 0, stream=0, slow=True)
    gpu.affine(word, 1, 7, stream=stream)
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(word) == [57]


def a_non_blocking_stream_does_not_wait_for_the_legacy_stream():
    gpu = Gpu()
    stream, word = ok(cu.cuStreamCreate(1)), gpu.word(1)
    other = gpu.word(1)
    gpu.affine(word, 1, 4, stream=0, slow=True)
    gpu.affine(other, 1, 1, stream=stream)
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(other) == [2]
    ok(cu.cuCtxSynchronize())


def the_per_thread_stream_is_another_than_the_legacy_one():
    gpu = Gpu()
    legacy, mine = ok(cu.cuStreamGetId(1)), ok(cu.cuStreamGetId(2))
    seen = []

    def other_thread():
        ok(cu.cuCtxSetCurrent(gpu.context))
        seen.append((ok(cu.cuStreamGetId(1)), ok(cu.cuStreamGetId(2))))

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert seen[0][0] == legacy
    assert len({legacy, mine, seen[0][1]}) == 3


def events_measure_time_on_the_device():
    gpu = Gpu()
    stream, word = ok(cu.cuStreamCreate(1)), gpu.word(0)
    gpu.affine(word, 1, 1, stream=stream)
    start, end = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
    ok(cu.cuEventRecord(start, stream))
    gpu.affine(word, 1, 1, stream=stream, slow=True)
    ok(cu.cuEventRecord(end, stream))
    ok(cu.cuEventSynchronize(end))
    assert ok(cu.cuEventElapsedTime(start, end)) > 0.1
    untimed = ok(cu.cuEventCreate(2))
    ok(cu.cuEventRecord(untimed, stream))
    ok(cu.cuEventSynchronize(untimed))
    assert refused(cu.cuEventElapsedTime(start, untimed)) == "INVALID_HANDLE"


def queries_say_not_ready_until_the_work_is_done():
    gpu = Gpu()
    stream, word, event = ok(cu.cuStreamCreate(1)), gpu.word(0), ok(cu.cuEventCreate(0))
    gpu.affine(word, 1, 1, stream=stream, slow=True)
    ok(cu.cuEventRecord(event, stream))
    polls = 0
    while (status := cu.cuEventQuery(event)[0]) == NOT_READY:
        polls += 1
    assert status == 0
    assert polls > 0
    ok(cu.cuStreamQuery(stream))


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


def a_host_function_runs_in_stream_order():
    gpu = Gpu()
    stream, word = ok(cu.cuStreamCreate(1)), gpu.word(5)
    pinned = ok(cu.cuMemHostAlloc(4, 0))
    view, seen = (ctypes.c_uint * 1).from_address(pinned), []
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda user: seen.append((user, view[0])))
    ok(cu.cuMemcpyDtoHAsync(pinned, word, 4, stream))
    ok(cu.cuLaunchHostFunc(stream, ctypes.cast(call, ctypes.c_void_p).value, 77))
    ok(cu.cuStreamSynchronize(stream))
    assert seen == [(77, 5)]


def a_stream_writes_into_pages_registered_by_the_program():
    gpu = Gpu()
    pages = mmap.mmap(-1, 4096)
    view = (ctypes.c_ulonglong * 512).from_buffer(pages)
    ok(cu.cuMemHostRegister(ctypes.addressof(view), 4096, 2))  # DEVICEMAP
    pointer = ok(cu.cuMemHostGetDevicePointer(ctypes.addressof(view), 0))
    stream, word = ok(cu.cuStreamCreate(1)), gpu.word(0)
    gpu.affine(word, 1, 1, stream=stream, slow=True)
    ok(cu.cuStreamWriteValue64(stream, pointer, 1234567890123, 0))
    ok(cu.cuStreamSynchronize(stream))
    assert view[0] == 1234567890123
    ok(cu.cuMemHostUnregister(ctypes.addressof(view)))
    error = refused(cu.cuMemHostUnregister(ctypes.addressof(view)))
    assert error in ("HOST_MEMORY_NOT_REGISTERED", "INVALID_VALUE")


def a_stream_waits_for_a_word_that_another_writes():
    gpu = Gpu()
    first, second = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(1))
    flag, word = gpu.word(0), gpu.word(1)
    ok(cu.cuStreamWaitValue32(second, flag, 3, 0))  # GEQ
    gpu.affine(word, 10, 0, stream=second)
    gpu.affine(word, 1, 4, stream=first, slow=True)
    ok(cu.cuStreamWriteValue32(first, flag, 3, 0))
    ok(cu.cuStreamSynchronize(second))
    assert gpu.read(word) == [50]


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


def a_kernel_that_touches_unmapped_memory_breaks_its_context():
    gpu = Gpu()
    hole = ok(cu.cuMemAddressReserve(2 << 20, 0, 0, 0))
    ok(gpu.launch("poke", (int(hole),), (ctypes.c_void_p,)))
    assert refused(cu.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
    assert refused(cu.cuMemAlloc(16)) == "ILLEGAL_ADDRESS"


def a_variable_of_the_module_can_be_read():
    gpu = Gpu()
    where, size = ok(cu.cuModuleGetGlobal(gpu.module, b"counter"))
    assert size == 4
    ok(cu.cuMemsetD32(where, 0, 1))
    ok(gpu.launch("count_up", (), (), grid=3, block=5))
    assert gpu.read(where) == [15]


def a_library_gives_kernels_that_launch():
    gpu = Gpu()
    with open(os.environ["TEST_IMAGE"], "rb") as file:
        library = ok(cu.cuLibraryLoadData(file.read(), [], [], 0, [], [], 0))
    kernel = ok(cu.cuLibraryGetKernel(library, b"affine"))
    word = gpu.word(2)
    config = cu.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    function = ok(cu.cuKernelGetFunction(kernel))
    types = (None, ctypes.c_uint, ctypes.c_uint)
    ok(cu.cuLaunchKernelEx(config, function, ((word, 5, 1), types), 0))
    assert gpu.read(word) == [11]
    ok(cu.cuLibraryUnload(library))


def a_new_context_leaves_nothing_behind():
    gpu = Gpu()
    before = ok(cu.cuMemGetInfo())[0]
    made = ok(cu.cuCtxCreate(None, 0, gpu.device))
    ok(cu.cuMemAlloc(64 << 20))
    ok(cu.cuStreamCreate(0))
    ok(cu.cuCtxDestroy(made))
    assert ok(cu.cuMemGetInfo())[0] == before
    assert refused(cu.cuCtxSetCurrent(made)) in ("INVALID_CONTEXT", "CONTEXT_IS_DESTROYED")


def the_capture_mode_belongs_to_the_thread():
    ok(cu.cuInit(0))
    mode = cu.CUstreamCaptureMode
    relaxed, globally = mode.CU_STREAM_CAPTURE_MODE_RELAXED, mode.CU_STREAM_CAPTURE_MODE_GLOBAL
    assert ok(cu.cuThreadExchangeStreamCaptureMode(relaxed)) == globally
    assert ok(cu.cuThreadExchangeStreamCaptureMode(globally)) == relaxed


def a_fork_child_cannot_use_the_driver_of_its_parent():
    Gpu()
    child = os.fork()
    if child == 0:
        os._exit(0 if refused(cu.cuMemGetInfo()) == "NOT_INITIALIZED" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ok(cu.cuMemGetInfo())


def a_fork_before_the_first_call_starts_fresh():
    child = os.fork()
    gpu = Gpu()
    assert gpu.read(gpu.word(3)) == [3]
    if child == 0:
        os._exit(0)
    with outside():
        status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0


BODIES = {
    name: body
    for name, body in globals().items()
    if callable(body) and getattr(body, "__module__", "") == __name__ and name[0] != "_"
}

if __name__ == "__main__":
    BODIES[sys.argv[1]]()
