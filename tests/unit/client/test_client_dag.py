"""The daemon's record of a job becomes a window."""

from dataclasses import replace

import pytest

from tandem._native import OperationKind, StreamKind
from tandem._results import Gpu, LaunchMemory, Window
from tandem.dag.from_job import from_job
from tandem.dag.graph import graph_of
from tandem.dag.model import ESTIMATED, UNRESOLVED
from tandem.dag.stats import stats_of
from tandem.errors import StateError, UsageError
from tandem.trace.records import RECORD

LAUNCH, COPY, MEMSET, SYNC, EVENT_RECORD, EVENT_WAIT, MARK, WAIT = 1, 2, 3, 6, 7, 8, 11, 14
NON_BLOCKING, SCATTERED, SAMPLED = 1, 16, 32
ONE, OTHER, LEGACY, PER_THREAD = 0x1000, 0x2000, 1, 2


def record(
    at_ns, kind, stream, *, of=0, low=0, thread=5, context=1, flags=NON_BLOCKING, ns=0, size=0
):
    value = context << 32 | low
    return RECORD.pack(at_ns, kind, flags, 0, thread, stream, of, size, 8, 32, ns, value)


def window(*records, pid=100, iterations=1, **rest):
    told = {"lost_records": 0, "is_cut": False, "first_iteration": 3, "kernels": (), **rest}
    return Window(
        pid=pid,
        gpus=(0,),
        begin_ns=0,
        end_ns=1000,
        iterations=iterations,
        records=b"".join(records),
        **told,
    )


FORK = (
    record(10, COPY, ONE, low=1),
    record(20, LAUNCH, ONE, of=0xA, ns=7),
    record(30, EVENT_RECORD, ONE, of=0xE),
    record(40, EVENT_WAIT, OTHER, of=0xE),
    record(45, MARK, 0),
    record(50, LAUNCH, OTHER, of=0xB),
    record(60, SYNC, OTHER, low=1),
)


@pytest.mark.parametrize(
    ("reason", "cause", "held_ns"),
    [(1, "held", 4_000_000), (2, "held", 4_000_000), (4, "pause", 0)],
)
def test_a_gap_in_which_the_gate_held_the_job_is_no_pause_of_the_job(reason, cause, held_ns):
    waited = RECORD.pack(4_000_100, WAIT, 0, 0xFFFF, 5, 0, 0, 0, 0, 0, 4_000_000, reason)
    told = window(
        record(10, LAUNCH, ONE, of=0xA, ns=20),
        waited,
        record(4_000_200, LAUNCH, ONE, of=0xA, ns=20),
    )

    graph = graph_of(from_job([told], "train"))

    (gap,) = graph.analysis.gaps
    assert (gap.cause.name.lower(), gap.held_ns) == (cause, held_ns)
    facts = dict(stats_of(graph).facts())
    assert ("idle while held by tandem" in facts) is (cause == "held")


def test_copies_and_memsets_of_a_running_job_have_no_duration():
    told = window(
        record(1, LAUNCH, ONE, of=0xA, ns=50),
        record(2, COPY, ONE, low=1, ns=50),
        record(3, MEMSET, ONE, ns=50),
    )

    found = from_job([told], "train").operations

    assert [op.duration_ns for op in found] == [50, 0, 0]
    assert [op.flags & ESTIMATED for op in found] == [ESTIMATED, 0, 0]


@pytest.mark.parametrize(
    ("kernel_ns", "told_as"), [(50, ("at least 50 ns",) * 2), (0, ("not known",) * 2)]
)
def test_a_sum_of_durations_that_are_not_all_known_is_no_figure(kernel_ns, told_as):
    told = window(
        record(1, LAUNCH, ONE, of=0xA, ns=kernel_ns),
        record(2, COPY, ONE, low=1),
    )

    facts = dict(stats_of(graph_of(from_job([told], "train"))).facts())

    assert (facts["GPU time of all"], facts["longest chain on the GPU"]) == told_as


def test_sampled_launches_use_what_their_parameters_say():
    known = LaunchMemory(accesses=((0x100, 64, True),), is_all=True)
    vague = LaunchMemory(accesses=((0x100, 64, False),), is_all=False)
    launches = [
        record(10 * low, LAUNCH, ONE, of=0xA, low=low, flags=NON_BLOCKING | flags)
        for low, flags in ((1, SAMPLED), (2, SAMPLED), (3, SAMPLED), (1, 0))
    ]

    found = from_job([window(*launches, launches={1: known, 2: vague})], "train")

    assert sorted((list(op.accesses), op.flags & UNRESOLVED) for op in found.operations) == [
        ([], UNRESOLVED),
        ([], UNRESOLVED),
        ([(256, 64, False)], UNRESOLVED),
        ([(256, 64, True)], 0),
    ]


def copy(at_ns, stream, target, size, *, source=0x9000):
    low, high = source & 0xFFFF_FFFF, source >> 32
    head = (at_ns, COPY, NON_BLOCKING, 0, 5, stream, target, size)
    return RECORD.pack(*head, low, high, 0, 1 << 32 | 1)


@pytest.mark.parametrize(
    ("one", "other", "independent"),
    [
        ((0x1000, 256), (0x1100, 256), True),  # two ranges of one segment
        ((0x1000, 257), (0x1100, 256), False),
        ((0x1000, 256), (0x9000, 256), False),  # the second writes what the first reads
    ],
)
def test_copies_use_no_more_of_a_segment_than_they_name(one, other, independent):
    graph = graph_of(from_job([window(copy(1, ONE, *one), copy(2, OTHER, *other))], "train"))

    assert graph.dag.independent(0, 1) is independent


def test_a_kernel_uses_the_whole_of_a_segment():
    segment = LaunchMemory(accesses=((0x1000, 4096, False),), is_all=True)
    launch = record(2, LAUNCH, OTHER, of=0xA, low=1, flags=NON_BLOCKING | SAMPLED)
    told = window(copy(1, ONE, 0x1000, 256), launch, launches={1: segment})

    assert not graph_of(from_job([told], "train")).dag.independent(0, 1)


def test_a_copy_from_an_unknown_source_is_independent_of_nothing():
    unknown = copy(1, ONE, 0x1000, 256, source=0)
    graph = graph_of(from_job([window(unknown, copy(2, OTHER, 0x2000, 256))], "train"))

    assert not graph.dag.independent(0, 1)


def test_records_become_operations_with_names():
    found = from_job([window(*FORK)], "train")

    assert [operation.name for operation in found.operations] == [
        "copy htod",
        "kernel 0xa",
        "event record",
        "event wait",
        "kernel 0xb",
        "wait for stream",
    ]
    assert found.operations[1].duration_ns == 7
    assert [stream.kind for stream in found.streams] == [StreamKind.NON_BLOCKING] * 2
    assert found.iterations == ((0, 6),)


@pytest.mark.parametrize(("mark", "is_marked"), [(1, True), (2, False)])
def test_iterations_are_marked_where_the_program_said_so(mark, is_marked):
    found = from_job([window(record(5, MARK, 0, flags=mark), *FORK[:4])], "train")

    assert found.is_marked is is_marked


def test_kernels_have_their_names_where_these_are_known():
    found = from_job([window(*FORK, kernels=((0xB, "vadd"),))], "train")

    names = [operation.name for operation in found.operations]
    assert "vadd" in names
    assert "kernel 0xa" in names


def test_the_order_of_the_job_is_that_of_the_graph():
    graph = graph_of(from_job([window(*FORK)], "train"), 1)

    assert graph.dag.before(1, 4)  # through the event
    assert not graph_of(from_job([window(*FORK[1:2], FORK[5])], "train")).dag.before(0, 1)


def test_windows_of_two_processes_are_one_but_claim_nothing_between_them():
    found = from_job([window(*FORK), window(*FORK, pid=200)], "train")

    assert [process.pid for process in found.processes] == [100, 200]
    assert found.contexts == 2
    assert len(found.streams) == 4
    assert [operation.submitted_ns for operation in found.operations] == sorted(
        [10, 20, 30, 40, 50, 60] * 2
    )
    dag = graph_of(found).dag
    assert not dag.before(0, 3)  # the copy of one process, and the launch of the other


def test_default_streams_are_one_a_context_and_one_a_thread():
    found = from_job(
        [
            window(
                record(1, LAUNCH, LEGACY, flags=0),
                record(2, LAUNCH, LEGACY, context=2, flags=0),
                record(3, LAUNCH, PER_THREAD, flags=0),
                record(4, LAUNCH, PER_THREAD, thread=6, flags=0),
            )
        ],
        "train",
    )

    assert len(found.streams) == 4
    assert sorted(stream.kind.name for stream in found.streams) == [
        "BLOCKING",
        "BLOCKING",
        "LEGACY",
        "LEGACY",
    ]
    assert {operation.kind for operation in found.operations} == {OperationKind.LAUNCH}


def test_what_is_missing_is_told():
    found = from_job([window(*FORK, lost_records=3, is_cut=True)], "train")

    assert found.unknown.lost_calls == 3
    assert found.unknown.is_cut_short
    assert found.gaps == tuple(range(len(found.operations)))


def test_across_records_that_were_lost_nothing_is_independent():
    told = (
        record(10, MEMSET, ONE, of=0x100, flags=NON_BLOCKING, size=8),
        record(20, EVENT_RECORD, ONE, of=0xE),
        record(30, EVENT_WAIT, OTHER, of=0xF),  # the lost records may have recorded this event
        record(40, MEMSET, OTHER, of=0x200, flags=NON_BLOCKING, size=8),
    )

    whole, lossy = (
        graph_of(from_job([window(*told, lost_records=lost)], "train")).dag for lost in (0, 1)
    )

    assert whole.independent(0, 3)
    assert not lossy.independent(0, 3)


def test_an_event_of_a_context_is_of_no_stream_that_orders_others():
    told = (
        record(10, MEMSET, ONE, of=0x100, flags=0, size=8),
        record(20, EVENT_RECORD, LEGACY, of=0xE, flags=SCATTERED),
        record(30, EVENT_WAIT, LEGACY, of=0xE, flags=SCATTERED),
        record(40, MEMSET, OTHER, of=0x200, flags=0, size=8),
    )

    graph = graph_of(from_job([window(*told)], "train"))

    assert not graph.dag.before(0, 3)
    assert not graph.dag.independent(0, 3)
    assert sorted(stream.name for stream in graph.window.streams) == [
        "events of the context",
        "stream 1",
        "stream 2",
    ]


def test_a_job_that_told_nothing_has_no_graph():
    with pytest.raises(StateError, match="'train' submitted nothing"):
        from_job([window()], "train")
    with pytest.raises(StateError):
        from_job([], "train")


def test_an_iteration_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="iterations 1 to 1, but no 2"):
        graph_of(from_job([window(*FORK)], "train"), 2)


def test_the_same_handle_of_two_processes_is_two_events():
    recorded = record(10, EVENT_RECORD, ONE, of=0xE)
    waits = record(20, EVENT_WAIT, OTHER, of=0xE)

    graph = graph_of(from_job([window(recorded, pid=100), window(waits, pid=101)], "train"))

    assert list(graph.edges()) == []


def gpu(index, sm_count):
    texts = {"uuid": "", "product_name": "", "mode": "", "software": True, "name": str(index)}
    numbers = {"memory_total_bytes": 0, "memory_used_bytes": 0, "busy_ratio": 0.0}
    return Gpu(index=index, sm_count=sm_count, **texts, **numbers)


@pytest.mark.parametrize(("counts", "known"), [((132, 8), 132), ((0, 132), 0), ((), 0)])
def test_the_multiprocessors_are_those_of_the_gpu_that_the_job_uses(counts, known):
    gpus = [gpu(index, count) for index, count in enumerate(counts)]

    assert from_job([window(*FORK)], "train", gpus).device.sm_count == known


def test_of_gpus_that_differ_no_multiprocessors_are_known():
    both = [window(*FORK), replace(window(*FORK, pid=101), gpus=(1,))]

    assert from_job(both, "train", [gpu(0, 132), gpu(1, 8)]).device.sm_count == 0
    assert from_job(both, "train", [gpu(0, 132), gpu(1, 132)]).device.sm_count == 132
