"""Contexts take turns on the modelled GPU as they do on the software GPU in mode time."""

import pytest

from tandemd.sim.machine import Engine, Memory

SLICE_NS, SWITCH_NS = 2_000, 200


@pytest.fixture
def engine():
    engine = Engine(slice_ns=SLICE_NS, switch_ns=SWITCH_NS)
    engine.stretches = []
    return engine


def run_out(engine):
    """Runs until all submitted work is done; returns who ended something, and when."""
    ended = []
    while (at_ns := engine.next_ns) is not None:
        context = engine.advance(at_ns)
        if context is not None:
            ended.append((at_ns, context))
    return ended


def test_the_first_context_finds_no_other_and_pays_for_no_change(engine):
    engine.submit(1, 500)

    assert run_out(engine) == [(500, 1)]
    assert engine.switches == 0


def test_pieces_of_one_context_end_in_order(engine):
    engine.submit(1, 500)
    engine.submit(1, 100)

    assert run_out(engine) == [(500, 1), (600, 1)]


def test_a_context_that_has_nothing_more_gives_the_engine_to_the_next_after_a_switch(engine):
    engine.submit(1, 500)
    engine.submit(2, 100)

    assert run_out(engine) == [(500, 1), (500 + SWITCH_NS + 100, 2)]


def test_a_piece_is_cut_at_the_end_of_the_slice_and_keeps_its_rest(engine):
    engine.submit(1, 3_000)
    engine.submit(2, 100)

    back_ns = SLICE_NS + SWITCH_NS + 100 + SWITCH_NS
    assert run_out(engine) == [(back_ns - SWITCH_NS, 2), (back_ns + 1_000, 1)]


def test_alone_a_context_keeps_the_engine_beyond_its_slice(engine):
    engine.submit(1, 10 * SLICE_NS)

    assert run_out(engine) == [(10 * SLICE_NS, 1)]
    assert engine.switches == 0


def test_contexts_come_in_order_of_their_numbers(engine):
    for context in (2, 3, 1):
        engine.submit(context, 100)

    assert [context for _, context in run_out(engine)] == [2, 3, 1]


def test_memory_is_full_to_the_byte():
    memory = Memory(10)

    assert memory.take(10)
    assert not memory.take(1)
    memory.give_back(4)
    assert memory.take(4)


def test_memory_whose_size_is_not_said_is_never_full():
    assert Memory(0).take(1 << 60)
