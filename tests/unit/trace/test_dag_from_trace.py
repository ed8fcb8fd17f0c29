"""The nodes and edges that the calls of a recording become."""

import pytest
from programs import Program
from recordings import CONTEXT, recording_of

from tandem._native import EdgeKind, OperationKind, StreamKind
from tandem.dag.from_trace import from_trace
from tandem.dag.graph import graph_of
from tandem.dag.labels import lane_names
from tandem.dag.model import (
    ESTIMATED,
    HOST_WAITS,
    PROGRAMMATIC,
    UNKNOWN_ORDER,
    UNRESOLVED,
)

STREAM, OTHER, EVENT, ADDRESS = 0x55, 0x66, 0x44, 0x7F00
LEGACY, PER_THREAD = 1, 2
FAILED, NOT_READY = 700, 600
CAPTURED = 16


def window_of(*threads):
    return from_trace(recording_of(*threads), "x.trace")


def only(*threads):
    (operation,) = window_of(*threads).operations
    return operation


def edges_of(*threads):
    return [(a, b, kind.name) for a, b, kind in graph_of(window_of(*threads)).edges()]


def test_a_query_that_said_done_is_told_from_a_wait():
    queried = Program().on("cuEventQuery", EVENT).on("cuStreamQuery", STREAM, stream=STREAM)
    waited = Program().on("cuEventSynchronize", EVENT)

    names = [operation.name for operation in window_of(queried).operations]
    assert names == ["event found done", "stream found done"]
    assert only(waited).name == "wait for event"


@pytest.mark.parametrize(
    ("name", "words", "kind", "size"),
    [
        ("cuMemAlloc_v2", (9, ADDRESS, 4096), OperationKind.ALLOC, 4096),
        ("cuMemAllocManaged", (9, ADDRESS, 4096, 1), OperationKind.ALLOC, 4096),
        ("cuMemAllocPitch_v2", (9, ADDRESS, 8, 512, 100, 3, 4), OperationKind.ALLOC, 300),
        ("cuMemFree_v2", (ADDRESS,), OperationKind.FREE, 0),
        ("cuMemsetD32_v2", (ADDRESS, 7, 16), OperationKind.MEMSET, 64),
        ("cuMemsetD2D8_v2", (ADDRESS, 64, 7, 10, 3), OperationKind.MEMSET, 30),
        ("cuMemcpyHtoD_v2", (ADDRESS, 9, 256), OperationKind.COPY, 256),
        ("cuEventSynchronize", (EVENT,), OperationKind.SYNC_EVENT, 0),
        ("cuEventQuery", (EVENT,), OperationKind.SYNC_EVENT, 0),
        ("cuCtxSynchronize", (), OperationKind.SYNC_CONTEXT, 0),
    ],
)
def test_a_call_is_a_node_of_its_kind(name, words, kind, size):
    operation = only(Program().on(name, *words))

    assert (operation.kind, operation.bytes) == (kind, size)


@pytest.mark.parametrize(
    ("name", "words", "kind"),
    [
        ("cuMemAllocAsync", (9, ADDRESS, 4096, STREAM), OperationKind.ALLOC),
        ("cuMemFreeAsync", (ADDRESS, STREAM), OperationKind.FREE),
        ("cuMemcpyDtoHAsync_v2", (9, ADDRESS, 64, STREAM), OperationKind.COPY),
        ("cuMemcpyBatchAsync_v2", (*range(11), STREAM), OperationKind.COPY),
        ("cuMemPrefetchAsync", (ADDRESS, 64, 0, STREAM), OperationKind.COPY),
        ("cuMemBatchDecompressAsync", (1, 2, 3, 4, 5, STREAM), OperationKind.COPY),
        ("cuMemsetD8Async", (ADDRESS, 1, 64, STREAM), OperationKind.MEMSET),
        ("cuLaunchHostFunc", (STREAM, 1, 2), OperationKind.HOST_FUNC),
        ("cuStreamAddCallback", (STREAM, 1, 2, 0), OperationKind.HOST_FUNC),
        ("cuStreamWriteValue32_v2", (STREAM, ADDRESS, 1, 0), OperationKind.MEMOP),
        ("cuSignalExternalSemaphoresAsync", (1, 2, 1, STREAM), OperationKind.MEMOP),
        ("cuWaitExternalSemaphoresAsync", (1, 2, 1, STREAM), OperationKind.MEMOP),
        ("cuGraphLaunch", (0xA, STREAM), OperationKind.GRAPH),
        ("cuEventRecord", (EVENT, STREAM), OperationKind.EVENT_RECORD),
        ("cuStreamWaitEvent", (STREAM, EVENT, 0), OperationKind.EVENT_WAIT),
        ("cuStreamSynchronize", (STREAM,), OperationKind.SYNC_STREAM),
        ("cuStreamQuery", (STREAM,), OperationKind.SYNC_STREAM),
    ],
)
def test_what_names_a_stream_is_in_it(name, words, kind):
    window = window_of(Program().on(name, *words, stream=STREAM))

    assert (window.operations[0].kind, window.operations[0].stream) == (kind, 0)
    assert window.streams[0].kind is StreamKind.NON_BLOCKING


def test_a_launch_has_name_blocks_and_time():
    program = Program().function().run(STREAM, device_ns=700).run(STREAM)
    config = (1, 4, 2, 1, 32, 1, 1, 0, 1, STREAM)
    program.on("cuLaunchKernelEx", *config, 0xF0, 0, 0, stream=STREAM)

    program.on("cuLaunchKernelEx", *config, 0xF0, 0, 0, stream=STREAM, device_ns=700)

    timed, untimed, wide, serial = window_of(program).operations

    assert (timed.name, timed.blocks, timed.duration_ns) == ("vadd", 1, 700)
    assert timed.flags & ESTIMATED == 0
    assert (untimed.duration_ns, untimed.flags & ESTIMATED) == (700, ESTIMATED)
    assert (wide.blocks, wide.flags & PROGRAMMATIC) == (8, PROGRAMMATIC)
    assert serial.flags & PROGRAMMATIC == 0  # programmatic launches are not timed


@pytest.mark.parametrize(
    ("name", "words", "other"),
    [
        ("cuMemAlloc_v2", (9, 0, 4096), {"result": FAILED}),
        ("cuStreamQuery", (STREAM,), {"result": NOT_READY}),
        ("cuMemsetD8Async", (ADDRESS, 1, 64, STREAM), {"stream": STREAM, "flags": CAPTURED}),
        ("cuMemGetInfo_v2", (1, 2, 3, 4), {}),
        ("cuStreamDestroy_v2", (STREAM,), {"stream": STREAM}),
    ],
)
def test_what_failed_or_was_captured_or_only_asks_is_no_node(name, words, other):
    assert window_of(Program().on(name, *words, **other)).operations == ()


def test_only_a_copy_to_the_host_that_is_not_asynchronous_is_a_wait():
    program = Program().on("cuMemcpyDtoH_v2", 9, ADDRESS, 8).on("cuMemcpyHtoD_v2", ADDRESS, 9, 8)
    program.on("cuMemcpyDtoHAsync_v2", 9, ADDRESS, 8, STREAM, stream=STREAM)

    flags = [operation.flags & HOST_WAITS for operation in window_of(program).operations]

    assert flags == [HOST_WAITS, 0, 0]


def test_the_legacy_stream_is_one_a_context_and_the_per_thread_one_one_a_thread():
    first = Program(tid=1).run(LEGACY).run(PER_THREAD)
    second = Program(tid=2, first=3).run(LEGACY).run(PER_THREAD)
    second.on("cuMemsetD8_v2", ADDRESS, 1, 8, context=CONTEXT + 1)
    second.on("cuMemsetD8_v2_ptds", ADDRESS, 1, 8)

    window = window_of(first, second)

    assert [operation.stream for operation in window.operations] == [0, 1, 0, 2, 3, 2]
    kinds = [stream.kind.name for stream in window.streams]
    assert kinds == ["LEGACY", "BLOCKING", "BLOCKING", "LEGACY"]
    assert [stream.context for stream in window.streams] == [0, 0, 0, 1]


def test_a_stream_that_was_destroyed_is_another_one_when_its_handle_comes_back():
    program = Program().run(STREAM)
    program.on("cuStreamDestroy_v2", STREAM, stream=STREAM).run(STREAM)

    assert [operation.stream for operation in window_of(program).operations] == [0, 1]


def test_a_context_that_was_destroyed_takes_its_streams_along():
    program = Program().run(STREAM).on("cuCtxDestroy_v2", CONTEXT, context=0).run(STREAM)

    window = window_of(program)

    assert [operation.context for operation in window.operations] == [0, 1]
    assert [stream.context for stream in window.streams] == [0, 1]


def test_a_wait_for_an_event_comes_after_its_record():
    program = Program().run(STREAM).on("cuEventRecord", EVENT, STREAM, stream=STREAM)
    program.on("cuStreamWaitEvent", OTHER, EVENT, 0, stream=OTHER).run(OTHER)

    assert edges_of(program) == [(0, 1, "STREAM"), (1, 2, "EVENT"), (2, 3, "STREAM")]


def test_the_same_handle_in_another_process_is_another_event():
    first = Program(pid=1, tid=1).on("cuEventRecord", EVENT, STREAM, stream=STREAM)
    second = Program(pid=2, tid=2, first=2)
    second.on("cuStreamWaitEvent", STREAM, EVENT, 0, stream=STREAM)

    window = window_of(first, second)

    assert edges_of(first, second) == []
    assert [process.pid for process in window.processes] == [1, 2]
    assert window.operations[1].flags & UNKNOWN_ORDER == 0


@pytest.mark.parametrize("share", ["cuIpcOpenEventHandle", "cuIpcGetEventHandle"])
def test_an_event_that_two_processes_share_may_be_recorded_in_the_other_one(share):
    program = Program().on(share, 1, 2)
    program.on("cuStreamWaitEvent", STREAM, EVENT, 0, stream=STREAM)

    assert only(program).flags & UNKNOWN_ORDER


@pytest.mark.parametrize("of", ["cuCtx", "cuGreenCtx"])
def test_an_event_of_a_context_orders_none_of_its_streams_with_another(of):
    program = Program().on("cuMemsetD8Async", 8, 1, 8, STREAM, stream=STREAM, flags=0)
    program.on(f"{of}RecordEvent", CONTEXT, EVENT).on(f"{of}WaitEvent", CONTEXT, EVENT)
    program.on("cuMemsetD8Async", 16, 1, 8, OTHER, stream=OTHER, flags=0)

    graph = graph_of(window_of(program))

    assert not graph.dag.before(0, 3)  # the driver lets them overlap ...
    assert not graph.dag.independent(0, 3)  # ... but not what follows the wait
    assert all(graph.operation(node).flags & UNKNOWN_ORDER for node in (1, 2))
    assert lane_names(graph)["stream", 1] == "events of the context"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuEventRecordWithFlags", (EVENT, STREAM, 1)),
        ("cuStreamWaitEvent", (STREAM, EVENT, 1)),
    ],
)
def test_a_graph_that_records_events_or_waits_for_some_has_an_unknown_order(name, words):
    program = Program().on("cuGraphLaunch", 0xA, STREAM, stream=STREAM)
    program.on(name, *words, stream=STREAM, flags=CAPTURED)
    program.on("cuGraphLaunch", 0xA, STREAM, stream=STREAM)

    flags = [operation.flags & UNKNOWN_ORDER for operation in window_of(program).operations]

    assert flags == [0, UNKNOWN_ORDER]


def test_what_a_thread_submits_after_its_wait_comes_after_what_it_waited_for():
    program = Program().run(STREAM).on("cuCtxSynchronize").run(OTHER)

    assert edges_of(program) == [(0, 1, "HOST"), (1, 2, "HOST")]


def test_where_calls_are_missing_events_are_not_known_any_more():
    program = Program().on("cuEventRecord", EVENT, STREAM, stream=STREAM)
    program.next += 5
    program.on("cuStreamWaitEvent", OTHER, EVENT, 0, stream=OTHER)

    graph = graph_of(window_of(program))

    assert graph.window.gaps == (1,)
    assert list(graph.edges()) == []
    assert graph.dag.node(1).flags & UNKNOWN_ORDER


def test_a_launch_on_several_devices_is_left_out_and_counted():
    window = window_of(Program().on("cuLaunchCooperativeKernelMultiDevice", 1, 2, 0))

    assert window.operations == ()
    assert window.unknown.left_out == {"cuLaunchCooperativeKernelMultiDevice": 1}


def uses(operation):
    return list(operation.accesses)


def test_a_launch_may_use_the_allocations_that_its_parameters_point_into_and_more():
    program = Program().function().on("cuMemAlloc_v2", 9, ADDRESS, 4096)
    program.run(STREAM, parameters=(ADDRESS + 100, 5)).run(STREAM, parameters=(ADDRESS + 4096, 5))
    program.on("cuMemFree_v2", ADDRESS).run(STREAM, parameters=(ADDRESS, 5))

    operations = window_of(program).operations

    assert [uses(operations[i]) for i in (1, 2, 4)] == [[(ADDRESS, 4096, False)], [], []]
    assert all(operations[i].flags & UNRESOLVED for i in (1, 2, 4))
    assert operations[3].bytes == 4096


def test_a_copy_reads_one_piece_and_writes_another():
    program = Program().on("cuMemcpyHtoD_v2", ADDRESS, 9, 64)
    program.on("cuMemcpy2D_v2", *range(17))

    plain, of_rows = window_of(program).operations

    assert (uses(plain), plain.flags & UNRESOLVED) == ([(9, 64, True), (ADDRESS, 64, False)], 0)
    assert (uses(of_rows), of_rows.flags & UNRESOLVED) == ([], UNRESOLVED)


@pytest.mark.parametrize(("height", "is_told"), [(1, True), (3, False)])
def test_what_is_between_the_rows_of_a_memset_is_not_written(height, is_told):
    program = Program().on("cuMemsetD2D8_v2", ADDRESS, 64, 7, 10, height)

    operation = only(program)

    assert uses(operation) == ([(ADDRESS, 10, False)] if is_told else [])
    assert bool(operation.flags & UNRESOLVED) is not is_told


def test_memory_that_is_not_the_process_s_own_may_be_used_by_others_too():
    program = (
        Program().on("cuMemAlloc_v2", 9, ADDRESS, 4096).on("cuIpcOpenMemHandle_v2", 9, 1, 2, 3)
    )
    for target in (ADDRESS, ADDRESS + 8192):
        program.on("cuMemcpyDtoD_v2", target, ADDRESS, 64).on("cuMemsetD8_v2", target, 7, 64)

    operations = window_of(program).operations[1:]

    assert [bool(operation.flags & UNRESOLVED) for operation in operations] == [
        *(False, False),
        *(True, True),
    ]


def test_the_memory_types_of_a_copy_between_peers_are_not_known():
    (copy,) = window_of(Program().on("cuMemcpy3DPeerAsync", 9, LEGACY, stream=LEGACY)).operations

    assert copy.name == "copy dtod"


def test_the_same_address_of_two_processes_is_different_memory():
    first = Program(pid=1, tid=1).on("cuMemcpyHtoDAsync_v2", ADDRESS, 9, 64, STREAM, stream=STREAM)
    second = Program(pid=2, tid=2, first=2)
    second.on("cuMemcpyHtoDAsync_v2", ADDRESS, 9, 64, STREAM, stream=STREAM)
    second.on("cuMemcpyDtoHAsync_v2", 99, ADDRESS, 64, OTHER, stream=OTHER)

    graph = graph_of(window_of(first, second))

    assert [(a, b, k.name) for a, b, k in graph.data_edges()] == [(1, 2, "READ_AFTER_WRITE")]


def test_memory_of_more_processes_than_addresses_tell_apart_is_not_claimed_to_be_known():
    first, last = 0, 128
    programs = [
        Program(pid=pid + 1, tid=pid + 1, first=pid + 1).on("cuMemsetD8_v2", ADDRESS, 1, 8)
        for pid in range(last + 1)
    ]

    dag = graph_of(window_of(*programs)).dag

    assert dag.independent(first, last - 1)
    assert not dag.independent(first, last)
    assert (first, EdgeKind.WRITE_AFTER_WRITE) not in dag.data_edges(last)


def test_every_edge_that_says_something_has_a_look_in_dot():
    from tandem.dag.dot import _STYLES

    assert set(_STYLES) == {kind.name for kind in EdgeKind} - {"UNKNOWN_DATA"}
