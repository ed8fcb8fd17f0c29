"""Telemetry has what it takes to tell which operations of a job had to wait for which."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from shim_daemon import Attached, FakeDaemon, Job
from shim_support import Preload

LAUNCH, COPY, ALLOC, FREE, SYNC = 1, 2, 4, 5, 6  # RecordKind
NON_BLOCKING, HOST_WAITED, IN_ORDER, QUERIED, SCATTERED = 1, 2, 4, 8, 16  # kRecord..
OF_STREAM, OF_EVENT, OF_CONTEXT = 1, 2, 3  # SyncOf
LEGACY, PER_THREAD = 1, 2
BUSY_KINDS = {12, 14}  # segments and waits at the gate, which come at any time


class Record(NamedTuple):
    ticks: int
    kind: int
    flags: int
    slot: int
    thread: int
    stream: int
    object: int
    bytes: int
    low: int
    high: int
    duration_ns: int
    value: int
    context: int


def records(attached: Attached) -> list[Record]:
    """Return the records since the last call, without segments."""
    found = [struct.unpack("<QBBHIQQQIIQII", packed) for packed in attached.records()]
    return [Record(*fields) for fields in found if fields[1] not in BUSY_KINDS]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    listening = FakeDaemon(tmp_path)
    yield listening
    listening.close()


@pytest.fixture
def attached_job(preload: Preload, daemon: FakeDaemon) -> Iterator[tuple[Job, Attached]]:
    with Job(preload.environment(FAKE_REFUSES="cuEventSynchronize")) as job:
        yield job, attach(job, daemon)


def attach(job: Job, daemon: FakeDaemon) -> Attached:
    job.start("launch()")
    attached = daemon.attach()
    job.result()
    attached.records()
    return attached


def test_a_record_names_the_context_and_whether_the_stream_waits_for_the_legacy_one(
    attached_job: tuple[Job, Attached],
) -> None:
    job, attached = attached_job

    job.do("(launch(stream=5), launch(stream=0))")
    job.do("cu.cuEventRecord(ctypes.c_void_p(42), ctypes.c_void_p(5))")

    own, legacy, event = records(attached)
    assert (own.stream, own.flags, own.context) == (5, NON_BLOCKING, 1)
    assert (legacy.stream, legacy.flags, legacy.context) == (LEGACY, 0, 1)
    assert (event.stream, event.flags, event.context) == (5, NON_BLOCKING, 1)


@pytest.mark.parametrize("call", ["cuCtxRecordEvent", "cuCtxWaitEvent", "cuGreenCtxRecordEvent"])
def test_an_event_of_a_context_is_told_from_one_of_its_legacy_stream(
    call: str, attached_job: tuple[Job, Attached]
) -> None:
    job, attached = attached_job

    job.do(f"cu.{call}(ctypes.c_void_p(0x1000), ctypes.c_void_p(42))")

    (event,) = records(attached)
    assert (event.stream, event.flags, event.object) == (LEGACY, SCATTERED, 42)


def test_a_destroyed_context_leaves_its_number_to_no_other(
    attached_job: tuple[Job, Attached],
) -> None:
    job, attached = attached_job

    job.do("cu.cuCtxDestroy_v2(ctypes.c_void_p(0x1000))")
    job.do("launch(stream=0)")

    assert [record.context for record in records(attached)] == [2]


def test_the_default_streams_of_two_threads_differ_by_the_thread(
    attached_job: tuple[Job, Attached],
) -> None:
    job, attached = attached_job

    job.do("launch(stream=2)")
    job.do("(t := threading.Thread(target=launch, args=(2,))).start() or t.join()")

    found = records(attached)
    assert [record.stream for record in found] == [PER_THREAD] * 2
    assert len({record.thread for record in found}) == 2
    assert len({record.slot for record in found}) == 2


def test_a_wait_says_what_was_waited_for(attached_job: tuple[Job, Attached]) -> None:
    job, attached = attached_job

    job.do("cu.cuStreamSynchronize(ctypes.c_void_p(5))")
    job.do("cu.cuCtxSynchronize()")
    job.do("cu.cuEventSynchronize(ctypes.c_void_p(42))")  # refused

    stream, context, failed = records(attached)
    assert (stream.kind, stream.value, stream.stream, stream.context) == (SYNC, OF_STREAM, 5, 1)
    assert (context.kind, context.value, context.context) == (SYNC, OF_CONTEXT, 1)
    assert (failed.kind, failed.value, failed.context) == (SYNC, 0, 0)


def test_a_query_that_finds_its_stream_done_is_recorded_once_for_a_loop(
    attached_job: tuple[Job, Attached],
) -> None:
    job, attached = attached_job
    ask = "cu.cuStreamQuery(ctypes.c_void_p(5))"

    job.do(f"[{ask} for _ in range(10)]")
    job.do("cu.cuEventQuery(ctypes.c_void_p(42))")
    job.do(ask)

    found = [(r.kind, r.flags & QUERIED, r.value, r.object) for r in records(attached)]
    stream, event = (SYNC, QUERIED, OF_STREAM, 5), (SYNC, QUERIED, OF_EVENT, 42)
    assert found == [stream, event, stream]


def test_what_is_captured_is_not_recorded(attached_job: tuple[Job, Attached]) -> None:
    job, attached = attached_job
    job.do("cu.cuStreamBeginCapture_v2(ctypes.c_void_p(5), 0)")

    job.do("cu.cuEventRecord(ctypes.c_void_p(42), ctypes.c_void_p(5))")
    job.do("cu.cuLaunchHostFunc(ctypes.c_void_p(5), ctypes.c_void_p(7), None)")
    job.do("cu.cuEventRecord(ctypes.c_void_p(43), ctypes.c_void_p(6))")

    assert [record.object for record in records(attached)] == [43]


def test_memory_of_a_stream_is_told_from_memory_of_the_host(
    attached_job: tuple[Job, Attached],
) -> None:
    job, attached = attached_job

    address, size = "ctypes.c_uint64(77)", "ctypes.c_size_t(4096)"
    job.do(f"cu.cuMemAllocAsync(ctypes.byref({address}), {size}, ctypes.c_void_p(5))")
    job.do(f"cu.cuMemFreeAsync({address}, ctypes.c_void_p(6))")
    job.do("alloc(4096)")

    made, freed, plain = records(attached)
    assert (made.kind, made.stream, made.flags) == (ALLOC, 5, IN_ORDER | NON_BLOCKING)
    assert (freed.kind, freed.stream, freed.flags) == (FREE, 6, IN_ORDER | NON_BLOCKING)
    assert (plain.kind, plain.stream, plain.flags) == (ALLOC, 0, 0)


SIZE = "ctypes.c_size_t(256)"


@pytest.mark.parametrize(
    ("call", "flags", "source"),
    [
        (
            f"cuMemcpyDtoH_v2(ctypes.c_uint64(64), ctypes.c_uint64(1 << 40), {SIZE})",
            HOST_WAITED,
            1 << 40,
        ),
        (f"cuMemcpyHtoD_v2(ctypes.c_uint64(1 << 40), ctypes.c_uint64(64), {SIZE})", 0, 64),
        (f"cuMemcpyDtoHAsync_v2(ctypes.c_uint64(64), ctypes.c_uint64(9), {SIZE}, None)", 0, 9),
        ("cuMemcpy2D_v2((ctypes.c_uint64 * 16)(*range(16)))", SCATTERED, 4),
    ],
)
def test_a_copy_says_whence_and_whether_the_host_waited(
    call: str, flags: int, source: int, attached_job: tuple[Job, Attached]
) -> None:
    job, attached = attached_job

    job.do(f"cu.{call}")

    (copy,) = records(attached)
    assert (copy.kind, copy.flags, copy.high << 32 | copy.low) == (COPY, flags, source)


def test_a_daemon_that_does_not_know_of_it_hears_nothing_new(
    preload: Preload, daemon: FakeDaemon
) -> None:
    daemon.features = 3  # those of the version before
    with Job(preload.environment()) as job:
        attached = attach(job, daemon)

        job.do("launch(stream=5)")
        job.do("cu.cuStreamQuery(ctypes.c_void_p(5))")
        job.do("cu.cuMemcpyDtoHAsync_v2(ctypes.c_uint64(64), ctypes.c_uint64(128), 1, None)")

        launch, copy = records(attached)
        assert (launch.kind, launch.context, copy.kind, copy.context) == (LAUNCH, 0, COPY, 0)
        assert (copy.low, copy.high) == (0, 0)
