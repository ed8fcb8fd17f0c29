"""Every call that gives the GPU work waits at a closed gate, or has a reason not to.

Each of them leaves one record that says what it was.
"""

import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from shim_daemon import Attached, FakeDaemon, Job
from shim_support import HERE, ROOT, Preload
from submission_calls import CALLS, COPY, EVENT, FUNCTION, GRAPH, LAUNCH, STREAM, Call

sys.path.insert(0, str(ROOT / "shim"))

import call_table

RECORD = struct.Struct("<QBBHIQQQIIQQ")
KINDS = {1, 2, 3, 9, 10, 13}  # RecordKind of submissions; other records may come beside them
GATE = 1
EVENT_RECORD = 7
MEASURED_NS, UNKNOWN_NS = 10_000, 100_000  # what the fake events report; the length of a segment


@pytest.fixture(scope="module")
def held_job(
    shim_library: Path, fake_driver: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Job, Attached]]:
    """One job that makes all calls."""
    folder = tmp_path_factory.mktemp("submissions")
    preload = Preload(shim=shim_library, driver=fake_driver, folder=folder)
    daemon = FakeDaemon(folder)
    with Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        job.do(f"sys.path.insert(0, {str(HERE)!r})")
        job.do("exec('import submission_calls; caller = submission_calls.Caller(cu)', globals())")
        yield job, attached
    daemon.close()


def _submissions(attached: Attached) -> list[dict[str, int]]:
    names = ("kind", "stream", "target", "bytes", "blocks", "threads", "direction", "source")
    found = []
    for packed in attached.records():
        _, kind, _, _, _, stream, target, size, blocks, threads, _, value = RECORD.unpack(packed)
        if kind in KINDS:
            assert value >> 32 == 1, "the number of its context"
            grid = (0, 0, threads << 32 | blocks) if kind == COPY else (blocks, threads, 0)
            values = (kind, stream, target, size, *grid[:2], value & 0xFFFFFFFF, grid[2])
            found.append(dict(zip(names, values, strict=True)))
    return found


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_submission_waits_at_the_gate_and_says_what_it_was(
    call: Call, held_job: tuple[Job, Attached], signatures: dict[str, list[str]]
) -> None:
    if call.symbol not in signatures:
        pytest.skip("not in the cuda.h of this build")
    job, attached = held_job
    count = f"cu.fake_count({call.symbol.encode()!r})"
    before = int(str(job.do(count)))
    _submissions(attached)
    attached.process.set_gate(hold=True)

    job.do(f"caller.begin({call.symbol!r})")
    if call.gated:
        waiting = attached.until("waiting_threads", 1)
        assert waiting.wait_reason == GATE
        assert job.do(count) == before
        assert _submissions(attached) == []
        attached.process.set_gate(hold=False)
    assert job.do("caller.result()") == 0

    attached.process.set_gate(hold=False)
    assert job.do(count) == before + 1
    wanted = {name: getattr(call, name) for name in ("kind", "stream", "target", "bytes")}
    wanted |= {name: getattr(call, name) for name in ("blocks", "threads", "direction", "source")}
    assert _submissions(attached) == [wanted]


def test_every_line_of_the_table_that_says_gated_is_tried() -> None:
    rows = call_table.read(call_table.TABLE.read_text())
    claimed = {row.symbol for row in rows if row.reason.startswith("gated")}
    assert claimed == {symbol for symbol, call in CALLS.items() if call.gated}
    recorded = {row.symbol for row in rows if row.reason.startswith("recorded; free")}
    assert recorded == {symbol for symbol, call in CALLS.items() if not call.gated}


def _durations(attached: Attached, kind: int) -> list[int]:
    found = [RECORD.unpack(packed) for packed in attached.records()]
    return [fields[10] for fields in found if fields[1] == kind]


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ("cu.cuGraphExecUpdate_v2(ctypes.c_void_p(graph), None, None)", True),  # a first guess
        ("cu.cuGraphExecDestroy(ctypes.c_void_p(graph))", False),
    ],
)
def test_another_graph_does_not_get_the_duration_of_a_destroyed_one(
    change: str, known: bool, held_job: tuple[Job, Attached]
) -> None:
    job, attached = held_job
    job.do(f"exec('graph = {0x9000 + known}', globals())")
    launch = "cu.cuGraphLaunch(ctypes.c_void_p(graph), ctypes.c_void_p(5))"
    attached.records()
    learned: list[int] = []
    while MEASURED_NS not in learned:  # the helper thread reads the events at its own pace
        assert job.do(launch) == 0
        learned += _durations(attached, GRAPH)
    assert set(learned) == {UNKNOWN_NS, MEASURED_NS}

    assert job.do(change) == 0
    assert job.do(launch) == 0

    assert _durations(attached, GRAPH) == [MEASURED_NS if known else UNKNOWN_NS]


@pytest.mark.parametrize("launch", ["launch that records events", "programmatic launch"])
def test_no_memory_operation_comes_between_programmatic_launches(
    shim_library: Path, fake_driver: Path, tmp_path: Path, launch: str
) -> None:
    written = "cu.fake_count(b'cuStreamWriteValue64_v2')"
    preload = Preload(shim=shim_library, driver=fake_driver, folder=tmp_path)
    with closing(FakeDaemon(tmp_path)) as daemon, Job(preload.environment()) as job:
        attached = job.attach_to(daemon)
        job.do(f"sys.path.insert(0, {str(HERE)!r})")
        job.do("exec('import submission_calls; caller = submission_calls.Caller(cu)', globals())")
        attached.until("busy", False)
        before = job.do(written)

        for _ in range(8):
            job.do(f"caller.begin({launch!r})")
            assert job.do("caller.result()") == 0
        attached.until("busy", False)

        assert (job.do(written) > before) == (launch != "programmatic launch")


def test_events_that_a_launch_records_itself_are_edges_of_the_graph(
    held_job: tuple[Job, Attached],
) -> None:
    job, attached = held_job
    attached.records()

    job.do("caller.begin('launch that records events')")

    assert job.do("caller.result()") == 0
    found = [RECORD.unpack(packed) for packed in attached.records()]
    wanted = [(LAUNCH, STREAM, FUNCTION), (EVENT_RECORD, STREAM, EVENT)]
    wanted += [(EVENT_RECORD, STREAM, EVENT + 1)]
    assert [(f[1], f[5], f[6]) for f in found if f[1] in (LAUNCH, EVENT_RECORD)] == wanted
