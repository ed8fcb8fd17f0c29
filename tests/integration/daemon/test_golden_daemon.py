"""The current daemon reads what shims of past builds said and wrote; see tests/data/golden."""

import mmap
import struct
from collections import Counter
from dataclasses import dataclass, replace

import golden
import pytest
from fake_shim import REGISTERED, STATE_HEADER_BYTES, WELCOME
from running_daemon import until

from tandem import _native
from tandem._wire import tandem_pb2 as pb

MIB = 1 << 20
JOB_ID_AT, REGISTERED_JOB_AT = 32, 0  # in HELLO; after the header of REGISTERED
LAUNCH, MEMSET, ALLOC, FREE, SYNC, MARK = 1, 3, 4, 5, 6, 11  # values of RecordKind
BATCH = 3
CONTEXT_AT = 60  # in a record: the upper half of `value`
# Of job.py: what it keeps, exports and has on its other GPU; the peak is before its first free.
HELD_BYTES, PEAK_BYTES = (6 + 2 + 2) * MIB, (6 + 4 + 2) * MIB
NOW_NS = 1 << 62  # later than everything recorded
PHASE = 0x1234567890ABCDEF


@dataclass(frozen=True, kw_only=True)
class Differs:
    """What differs between builds; 0 is what a build does not report yet."""

    swappable: int = 0  # asked for by builds that know it
    abilities: int = 0  # in HELLO, as the next
    mps_percent: float = 0
    refused_by: tuple[int, int, int] = (0, 0, 0)
    peak_of_iterations: int = 0
    contexts: frozenset[int] = frozenset({0})  # contexts that its launches report
    state_bytes: int = 6 * 4096 + 17 * 65536
    swapped_bytes: int = 0  # once it is paused


MOVES = Differs(
    swappable=1,
    abilities=3,
    refused_by=(0, 0, 1),
    peak_of_iterations=HELD_BYTES,
    contexts=frozenset({1}),
    state_bytes=7 * 4096 + 17 * 65536 + 512 * 1024,
    swapped_bytes=8 * MIB,
)
BUILDS = {
    "2026-11-21-69785542": Differs(),
    "2026-11-22-14f4bb5b": MOVES,
    "2026-11-26-2ed5a2ff": replace(MOVES, mps_percent=100),
    "2026-11-28-bb22f12b": replace(MOVES, mps_percent=100, refused_by=(1, 0, 0)),
}


@pytest.fixture(params=sorted({*BUILDS, *golden.names()}))
def build(request):
    return request.param


@pytest.fixture
def past(build):
    return golden.load(build)


def one(messages):
    (message,) = messages
    return message


def test_what_a_job_of_the_past_asks_for_is_understood(past, build):
    register = _native.decode(one(past.of("job", "REGISTER")))
    hello = _native.decode(one(past.of("job", "HELLO")))

    for asks in (register, hello):
        assert (asks.request.name, asks.request.group) == ("golden", "past")
        assert (asks.request.job_class, asks.request.memory_bytes) == (BATCH, 64 * MIB)
        assert (asks.request.memory_percent, asks.request.memory_min_bytes) == (0, 0)
        assert (asks.request.slo_p99_ns, asks.request.sm_percent) == (50_000_000, 0)
        assert (asks.request.preemptible, asks.request.wait_memory_s) == (0, 0)
        assert asks.request.swappable == BUILDS[build].swappable
        assert (asks.promise, asks.space, asks.idle_release_s) == ((0, 0), (0, 0), 0)
    assert "job.py" in register.command
    assert (register.gpu, register.no_wait, register.only_asks) == ("", False, False)
    assert (hello.layout_min, hello.layout_max, hello.shim_version) == (1, 1, 0x000100)
    assert (hello.clock, hello.abilities) == (0, BUILDS[build].abilities)
    assert hello.mps_percent == BUILDS[build].mps_percent
    (device,) = hello.device_uuids
    assert _native.decode(one(past.of("job", "USES"))).device_uuid != device
    assert _native.decode(one(past.of("job", "SHARED"))).key != 0


@pytest.mark.parametrize("when", ["at-work", "paused"])
def test_the_pages_of_a_shim_of_the_past_say_what_its_job_did(past, build, when):
    process = _native.Process(process_id=1, job_id=1)
    poller = _native.Poller()
    poller.add(process, group=1)
    write(process.fds[1], past.pages[f"state-{when}"])

    poller.poll(now_ns=NOW_NS)
    (seen,) = poller.snapshots()

    assert len(past.pages["state-at-work"]) == BUILDS[build].state_bytes
    assert (seen.device_bytes, seen.peak_bytes) == (HELD_BYTES, PEAK_BYTES)
    assert (seen.alloc_count, seen.refused_count) == (4, 1)
    assert seen.refused_by == BUILDS[build].refused_by
    assert (seen.memory_ticket, seen.waiting_threads, seen.wait_total_ns[0]) == (0, 0, 0)
    assert (seen.launches, seen.steps, seen.phase_hash) == (6, 3, PHASE)
    assert (seen.ungated, seen.capturing, seen.stopped) == (False, 0, 0)
    assert seen.iteration_peak_bytes == BUILDS[build].peak_of_iterations
    assert seen.in_set is None
    assert (seen.following_streams, sum(seen.staying_streams), seen.set_switches) == (0, 0, 0)
    swapped_bytes = BUILDS[build].swapped_bytes if when == "paused" else 0
    assert (seen.swapped_bytes, seen.swap_out_bytes) == (swapped_bytes, swapped_bytes)
    assert (seen.swap_in_bytes, seen.filed_bytes) == (0, 0)
    process.close()


def test_the_rings_of_a_shim_of_the_past_are_read_to_the_last_record(past, build):
    process = _native.Process(process_id=1, job_id=1)
    poller = _native.Poller()
    poller.add(process, group=1)
    poller.poll(now_ns=NOW_NS - 1)
    poller.drain_records()  # from now on records are kept
    write(process.fds[1], past.pages["state-at-work"])

    poller.poll(now_ns=NOW_NS)
    packed = b"".join(data for _, data in poller.drain_records())
    records = [packed[at : at + 64] for at in range(0, len(packed), 64)]
    (seen,) = poller.snapshots()

    kinds = Counter(record[8] for record in records)
    assert [kinds[kind] for kind in (LAUNCH, MEMSET, ALLOC, FREE, SYNC)] == [6, 2, 4, 1, 3]
    assert kinds[MARK] == 4, "three iterations, and the beginning of a phase"
    assert (seen.records, seen.dropped_records) == (len(records), 0)
    assert (seen.live_slots, seen.busy) == (2, False)
    launches = [record for record in records if record[8] == LAUNCH]
    assert {struct.unpack_from("=II", launch, 40) for launch in launches} == {(7, 32)}
    assert {struct.unpack_from("=I", launch, CONTEXT_AT)[0] for launch in launches} == BUILDS[
        build
    ].contexts
    process.close()


def test_a_job_of_the_past_is_managed_as_it_asked(daemon, past, build):
    launcher = daemon.start().connect()
    launcher.socket.send(one(past.of("job", "REGISTER")))
    kind, body, _ = launcher.receive()
    assert kind == REGISTERED
    (job_id,) = struct.unpack_from("=Q", body, REGISTERED_JOB_AT)
    shim = daemon.connect()

    shim.socket.send(with_job(one(past.of("job", "HELLO")), job_id))
    kind, body, fds = shim.receive()
    assert (kind, len(fds)) == (WELCOME, 3), body
    write(fds[1], past.pages["state-at-work"])
    for name in ("MAPPED", "SHARED", "USES"):
        shim.socket.send(one(past.of("job", name)))

    with daemon.rpc() as rpc:
        until(lambda: job_of(rpc).status.steps == 3, what="its page is read")
        job = job_of(rpc)
        assert (job.name, job.display_name) == (f"j-{job_id:x}", "golden")
        assert "job.py" in job.command
        assert (job.spec.group, getattr(job.spec, "class")) == ("past", pb.CLASS_BATCH)
        assert (job.spec.memory_quota_bytes, job.spec.slo.p99.nanos) == (64 * MIB, 50_000_000)
        assert job.spec.swappable is bool(BUILDS[build].swappable)
        assert (job.status.launches, job.status.resident_bytes) == (6, HELD_BYTES)
        assert (len(job.processes), job.processes[0].device_bytes) == (1, HELD_BYTES)
        until(lambda: job_of(rpc).gpu == "0,1", what="it uses another GPU, too")


def job_of(rpc):
    return one(rpc.jobs())


def with_job(hello, job_id):
    """Set the job id, which comes from the environment and is not part of the recording."""
    changed = bytearray(hello)
    struct.pack_into("=Q", changed, JOB_ID_AT, job_id)
    return bytes(changed)


def write(fd, page):
    """Write what the past shim wrote, below the current daemon's header."""
    with mmap.mmap(fd, 0) as state:
        state[STATE_HEADER_BYTES : len(page)] = page[STATE_HEADER_BYTES:]
