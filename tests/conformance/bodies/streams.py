"""Order within and between streams, events, host functions, stream memory operations."""

from __future__ import annotations

import ctypes
import mmap
import threading

from cuda.bindings import driver as cu
from gpu import NOT_READY, Gpu, ok, refused


def a_stream_keeps_its_order():
    gpu = Gpu()
    stream = ok(cu.cuStreamCreate(1))
    word, expected = gpu.word(1), 1
    for i in range(50):
        gpu.affine(word, 3, i, stream=stream)
        expected = (expected * 3 + i) % 2**32
    ok(cu.cuStreamSynchronize(stream))
    assert gpu.read(word) == [expected]


def work_of_a_destroyed_stream_is_waited_for():
    gpu = Gpu()
    stream, ran, word = ok(cu.cuStreamCreate(1)), ctypes.c_int(0), gpu.word(1)
    gpu.affine(word, 1, 4, stream=stream, slow=True)
    note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: setattr(ran, "value", 1))
    ok(cu.cuLaunchHostFunc(stream, cu.CUhostFn(ctypes.cast(note, ctypes.c_void_p).value), 0))
    ok(cu.cuStreamDestroy(stream))
    ok(cu.cuCtxSynchronize())
    assert ran.value == 1
    assert gpu.read(word) == [5]


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


def what_a_blocking_stream_waits_for_may_come_in_another_after_work_in_the_legacy_one():
    gpu = Gpu()
    waiting, other = ok(cu.cuStreamCreate(0)), ok(cu.cuStreamCreate(0))
    word, sign = gpu.word(1), gpu.word(0)
    gpu.affine(gpu.word(0), 1, 1, stream=0)
    ok(cu.cuStreamWaitValue32(waiting, sign, 1, cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    assert cu.cuStreamQuery(waiting)[0] == NOT_READY
    gpu.affine(word, 1, 4, stream=waiting)
    assert cu.cuStreamQuery(waiting)[0] == NOT_READY
    ok(cu.cuStreamWriteValue32(other, sign, 1, 0))
    ok(cu.cuStreamSynchronize(waiting))
    assert gpu.read(word) == [5]


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


def the_capture_mode_belongs_to_the_thread():
    ok(cu.cuInit(0))
    mode = cu.CUstreamCaptureMode
    relaxed, globally = mode.CU_STREAM_CAPTURE_MODE_RELAXED, mode.CU_STREAM_CAPTURE_MODE_GLOBAL
    assert ok(cu.cuThreadExchangeStreamCaptureMode(relaxed)) == globally
    assert ok(cu.cuThreadExchangeStreamCaptureMode(globally)) == relaxed
