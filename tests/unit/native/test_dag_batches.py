"""Adding many nodes and edges at once gives the same graph as one by one."""

from collections import Counter

import pytest
from dag_program import Program

from tandem._native import Dag, EdgeKind, OperationKind, StreamKind, add_all
from tandem.dag.model import Operation

EVENT, BUFFER = 7, (0x1000, 64, False)


@pytest.fixture
def dag():
    """Launches alternate between two streams and write the same buffer; the second waits once."""
    program = Program()
    for turn in range(6):
        program.launch((program.one, program.other)[turn % 2], accesses=[BUFFER])
        if turn == 2:
            program.add(OperationKind.EVENT_RECORD, program.one, object=EVENT)
            program.add(OperationKind.EVENT_WAIT, program.other, object=EVENT)
    return program.dag


@pytest.mark.parametrize("of_data", [False, True])
def test_edges_between_nodes_are_those_of_each(dag, of_data):
    edges_to = dag.data_edges if of_data else dag.edges
    each = [
        (from_, node, kind)
        for node in range(2, 8)
        for from_, kind in sorted(edges_to(node), key=lambda edge: (edge[0], edge[1].value))
        if from_ >= 1
    ]

    assert each
    assert dag.edges_between(2, 8, of_data=of_data, since=1) == each
    assert dag.edges_between(5, 5, of_data=of_data, since=0) == []


def test_edges_are_counted_by_kind_between_the_nodes_of_a_part(dag):
    inside = Counter(
        kind
        for of_data in (False, True)
        for _, _, kind in dag.edges_between(3, 8, of_data=of_data, since=3)
    )

    assert inside[EdgeKind.STREAM]
    assert inside[EdgeKind.WRITE_AFTER_WRITE]
    assert dag.count_edges(3, 8) == inside
    with pytest.raises(IndexError, match="node 8 is not there"):
        dag.count_edges(3, 9)


def operation(kind, thread, stream, **rest):
    return Operation(kind, "", thread, rest.pop("context", 0), 0, stream, **rest)


def graph_of(*operations, gaps=()):
    """A graph of two processes, each with a thread, a context and a stream."""
    dag = Dag()
    streams = [dag.add_stream(dag.add_context(), StreamKind.NON_BLOCKING) for _ in range(2)]
    add_all(dag, operations, streams=streams, processes=[0, 1], gaps=set(gaps))
    return dag


def test_memory_of_two_processes_is_never_the_same():
    write = {"accesses": (BUFFER,)}
    launch = OperationKind.LAUNCH

    apart = graph_of(operation(launch, 0, 0, **write), operation(launch, 1, 1, **write))
    shared = graph_of(operation(launch, 0, 0, **write), operation(launch, 0, 1, **write))

    assert apart.independent(0, 1)
    assert not shared.independent(0, 1)


def test_a_thread_waits_for_the_context_that_it_is_in():
    launches = [operation(OperationKind.LAUNCH, 0, stream) for stream in (0, 1)]
    after = operation(OperationKind.LAUNCH, 0, 0, context=1)

    waits = [operation(OperationKind.SYNC_CONTEXT, 0, None, context=context) for context in (0, 1)]

    assert graph_of(*launches, waits[0], after).edges(2) == [(0, EdgeKind.HOST)]
    assert graph_of(*launches, waits[1], after).edges(2) == [(1, EdgeKind.HOST)]


def test_where_operations_are_missing_nothing_is_independent():
    launches = [
        operation(OperationKind.LAUNCH, 0, stream, accesses=((a, 8, False),))
        for stream, a in ((0, 0), (1, 64))
    ]

    assert graph_of(*launches).independent(0, 1)
    assert not graph_of(*launches, gaps=[1]).independent(0, 1)


def test_a_thread_or_stream_that_the_window_does_not_have_is_refused():
    for thread, stream in ((2, 0), (0, 2)):
        with pytest.raises(IndexError):
            graph_of(operation(OperationKind.LAUNCH, thread, stream))
