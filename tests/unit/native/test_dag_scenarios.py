"""Whole small programs and their graphs."""

import pytest
from dag_program import Program

from tandem._native import Dag, EdgeKind, Operation, OperationKind, StreamKind

PROGRAMMATIC = 16


@pytest.fixture
def program():
    return Program()


def join(program, source, target, event):
    """Make one stream wait for another."""
    program.add(OperationKind.EVENT_RECORD, source, object=event)
    program.add(OperationKind.EVENT_WAIT, target, object=event)


def test_a_diamond(program):
    top = program.launch(program.one, accesses=[(0, 8, False)])
    join(program, program.one, program.other, event=1)
    left = program.launch(program.one, accesses=[(0, 8, True), (8, 8, False)])
    right = program.launch(program.other, accesses=[(0, 8, True), (16, 8, False)])
    join(program, program.other, program.one, event=2)
    bottom = program.launch(program.one, accesses=[(8, 16, True)])

    before = program.dag.before
    assert before(top, left)
    assert before(top, right)
    assert before(left, bottom)
    assert before(right, bottom)
    assert program.dag.independent(left, right)
    reads = EdgeKind.READ_AFTER_WRITE
    assert program.dag.data_edges(bottom) == [(right, reads), (left, reads)]


def test_fork_and_join_over_many_streams(program):
    workers = [program.stream(StreamKind.NON_BLOCKING) for _ in range(8)]
    root = program.launch(program.one)
    program.add(OperationKind.EVENT_RECORD, program.one, object=100)
    parts = []
    for event, worker in enumerate(workers):
        program.add(OperationKind.EVENT_WAIT, worker, object=100)
        parts.append(program.launch(worker, accesses=[]))
        program.add(OperationKind.EVENT_RECORD, worker, object=event)
    for event in range(len(workers)):
        program.add(OperationKind.EVENT_WAIT, program.one, object=event)
    end = program.launch(program.one)

    assert all(program.dag.before(root, p) and program.dag.before(p, end) for p in parts)
    assert all(program.dag.independent(parts[0], part) for part in parts[1:])


def test_the_default_stream_is_a_barrier(program):
    second = program.stream(StreamKind.BLOCKING)
    firsts = [program.launch(program.blocking), program.launch(second)]
    barrier = program.launch(program.legacy)
    after = program.launch(second)

    assert sorted(program.dag.edges(barrier)) == [(node, EdgeKind.LEGACY) for node in firsts]
    assert all(program.dag.before(node, after) for node in firsts)


def test_the_default_streams_of_two_devices_have_nothing_in_common(program):
    device = program.dag.add_context()
    there = program.dag.add_stream(device, StreamKind.BLOCKING)
    far = program.launch(there)
    barrier = program.launch(program.legacy)
    whole = program.add(OperationKind.SYNC_CONTEXT)
    program.dag.use_context(program.thread, device)
    second = program.add(OperationKind.SYNC_CONTEXT)

    assert not program.dag.before(far, barrier)
    assert program.dag.before(barrier, whole)
    assert not program.dag.before(far, whole)
    assert program.dag.before(far, second)


def test_what_is_captured_is_no_node_and_a_launch_of_it_is_one(program):
    first = program.launch(program.one)
    # The launches that the program captures here are not reported, since nothing runs.
    graph = program.add(OperationKind.GRAPH, program.one, object=5)
    after = program.launch(program.one)

    assert graph == first + 1
    assert program.dag.edges(after) == [(graph, EdgeKind.STREAM)]


def test_an_event_orders_operations_of_two_processes():
    dag = Dag()
    contexts = [dag.add_context(), dag.add_context()]
    streams = [dag.add_stream(context, StreamKind.NON_BLOCKING) for context in contexts]
    threads = [dag.add_thread(context) for context in contexts]

    def add(process, kind, event=0):
        where = {"thread": threads[process], "stream": streams[process]}
        return dag.add(Operation(kind, object=event, **where))

    made = add(0, OperationKind.LAUNCH)
    add(0, OperationKind.EVENT_RECORD, event=9)
    aside = add(1, OperationKind.LAUNCH)
    add(1, OperationKind.EVENT_WAIT, event=9)
    used = add(1, OperationKind.LAUNCH)

    assert dag.before(made, used)
    assert not dag.before(made, aside)


def test_a_programmatic_launch_may_run_beside_the_kernel_before_it(program):
    first = program.launch(program.one)
    kernel = program.launch(program.one)
    early = program.launch(program.one, flags=PROGRAMMATIC)
    last = program.launch(program.one)

    assert program.dag.edges(early) == [(kernel, EdgeKind.OVERLAP)]
    assert program.dag.before(first, early)
    assert not program.dag.before(kernel, early)
    assert program.dag.before(kernel, last)
    assert program.dag.before(early, last)


def test_behind_anything_but_a_kernel_a_programmatic_launch_is_an_ordinary_one(program):
    program.launch(program.one)
    copy = program.add(OperationKind.COPY, program.one)
    launch = program.launch(program.one, flags=PROGRAMMATIC, accesses=[])

    assert program.dag.edges(launch) == [(copy, EdgeKind.STREAM)]
    assert program.dag.node(launch).flags == 0


def test_freeing_memory_waits_for_nothing_on_the_device(program):
    program.add(OperationKind.ALLOC, object=100, bytes=10)
    launch = program.launch(program.one, accesses=[(100, 10, False)])
    freed = program.add(OperationKind.FREE, object=100)

    assert not program.dag.before(launch, freed)
    assert not program.dag.independent(launch, freed)


def test_the_number_of_a_stream_is_given_anew_when_nothing_of_it_is_left(program):
    launch = program.launch(program.one)
    program.dag.end_stream(program.one)
    early = program.stream(StreamKind.BLOCKING)
    program.dag.retire(launch + 1)
    late = program.stream(StreamKind.BLOCKING)

    assert early != program.one
    assert late == program.one
    with pytest.raises(ValueError, match="is no stream"):
        program.dag.end_stream(program.thread)


def test_streams_events_and_threads_that_come_and_go_take_no_more_room(program):
    used = []
    for event in range(20_000):
        stream = program.stream(StreamKind.BLOCKING)
        program.launch(stream, accesses=[])
        join(program, stream, program.one, event)
        program.dag.end_event(event)
        program.dag.end_stream(stream)
        program.dag.retire(max(program.dag.end - 100, 0))
        used.append(program.dag.bytes)

    assert max(used[10_000:]) <= max(used[:10_000])
    assert max(used) < 1 << 20


def test_more_streams_than_can_be_followed_are_refused(program):
    streams = [program.stream(StreamKind.BLOCKING) for _ in range(4091)]

    with pytest.raises(ValueError, match="there are 4096 streams and threads, the most"):
        program.stream(StreamKind.BLOCKING)
    program.dag.end_stream(streams[0])
    assert program.stream(StreamKind.BLOCKING) == streams[0]


def test_an_event_that_was_destroyed_stands_for_nothing(program):
    program.add(OperationKind.EVENT_RECORD, program.one, object=7)
    program.dag.end_event(7)
    wait = program.add(OperationKind.EVENT_WAIT, program.other, object=7)

    assert program.dag.edges(wait) == []
