"""The rules by which operations follow each other."""

import pytest
from dag_program import Program

from tandem._native import EdgeKind, OperationKind

HOST_WAITS = 1


@pytest.fixture
def program():
    return Program()


def test_a_stream_keeps_its_order(program):
    first, second = program.launch(program.one), program.launch(program.one)

    assert program.dag.edges(second) == [(first, EdgeKind.STREAM)]
    assert program.dag.before(first, second)


def test_streams_are_independent(program):
    first, second = program.launch(program.one), program.launch(program.other)

    assert program.dag.edges(second) == []
    assert not program.dag.before(first, second)


def test_a_wait_comes_after_what_its_event_was_recorded_behind(program):
    first = program.launch(program.one)
    record = program.add(OperationKind.EVENT_RECORD, program.one, object=7)
    later = program.launch(program.one)
    wait = program.add(OperationKind.EVENT_WAIT, program.other, object=7)
    second = program.launch(program.other)

    assert program.dag.edges(wait) == [(record, EdgeKind.EVENT)]
    assert program.dag.before(first, second)
    assert not program.dag.before(later, second)


def test_the_legacy_stream_is_a_barrier_for_blocking_streams_only(program):
    before, aside = program.launch(program.blocking), program.launch(program.one)
    barrier = program.launch(program.legacy)
    after, aside_too = program.launch(program.blocking), program.launch(program.one)

    assert program.dag.edges(barrier) == [(before, EdgeKind.LEGACY)]
    assert program.dag.edges(after) == [(barrier, EdgeKind.LEGACY)]
    assert not program.dag.before(aside, barrier)
    assert not program.dag.before(barrier, aside_too)


def test_what_comes_after_a_wait_of_the_host_comes_after_what_it_waited_for(program):
    first = program.launch(program.one)
    wait = program.add(OperationKind.SYNC_STREAM, program.one)
    second = program.launch(program.other)

    assert program.dag.edges(second) == [(wait, EdgeKind.HOST)]
    assert program.dag.before(first, second)


def test_a_call_that_waits_is_a_wait(program):
    copy = program.add(OperationKind.COPY, program.one, flags=HOST_WAITS)
    second = program.launch(program.other)

    assert program.dag.edges(second) == [(copy, EdgeKind.HOST)]


def test_a_wait_for_an_event_that_was_never_recorded_is_none(program):
    wait = program.add(OperationKind.EVENT_WAIT, program.one, object=7)

    assert program.dag.edges(wait) == []
    assert program.dag.node(wait).flags == 0


def test_after_a_loss_the_order_of_events_is_not_known(program):
    program.add(OperationKind.EVENT_RECORD, program.one, object=7)
    program.dag.lose()

    wait = program.add(OperationKind.EVENT_WAIT, program.other, object=7)

    assert program.dag.edges(wait) == []
    assert program.dag.node(wait).flags == 8


def test_numbers_that_were_not_given_are_refused(program):
    with pytest.raises(ValueError, match="stream 99 is unknown"):
        program.launch(99)
    with pytest.raises(ValueError, match="is no stream"):
        program.launch(program.thread)
    with pytest.raises(IndexError, match="node 3 is not there"):
        program.dag.node(3)
