"""A job asks not to lose the GPU now: what it gets by that, and what it does not."""

import pytest
from talk import BATCH, MS, NORMAL, Talk, run

from tandemd.core.events import CloseGates, OpenGates
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options

FIRST_GIVES_WAY = CloseGates(process_ids=(1,))


def two_at_work(policy="fair", **options):
    """Two processes; the first has the turn and the second waits at its gate."""
    talk = Talk(Options(policy=policy, min_share=0.0, **options))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)
    return talk


def wishes(talk, for_ms, process_id=1):
    """From now on; 0 ends it."""
    until_ns = talk.now_ns + int(for_ms * MS) if for_ms else 0
    return talk.sample(process_id, critical_until_ns=until_ns)


@pytest.mark.parametrize("policy", ["fair", "priority"])
def test_a_turn_lasts_as_long_as_the_wish(policy):
    talk = two_at_work(policy)
    wishes(talk, 14)

    talk.works(1, after_ms=10, ran_ms=10)
    assert talk.gates == []
    talk.works(1, after_ms=3, ran_ms=3)
    assert talk.gates == []
    talk.works(1, after_ms=1, ran_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_it_ends_with_the_block():
    talk = two_at_work()
    wishes(talk, 100)
    talk.works(1, after_ms=12, ran_ms=12)
    assert talk.gates == []

    wishes(talk, 0)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_a_turn_grows_by_no_more_than_the_bound_however_often_it_is_asked():
    talk = two_at_work(critical_ns=4 * MS)
    talk.works(1, after_ms=9, ran_ms=9)

    for ran_ms in range(1, 6):
        wishes(talk, 2)
        talk.works(1, after_ms=1, ran_ms=1)
        assert talk.gates == ([] if ran_ms < 5 else [FIRST_GIVES_WAY])


def test_the_scheduler_comes_round_at_the_end_of_the_wish():
    talk = two_at_work()
    wishes(talk, 10.5)

    talk.works(1, after_ms=10, ran_ms=10)
    assert talk.gates == []
    assert talk.wake_at_ms == 1
    talk.tick(after_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_a_holder_without_work_is_not_heard():
    talk = two_at_work()
    wishes(talk, 100)

    talk.rests(1, after_ms=1)
    talk.tick(after_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY, OpenGates(process_ids=(2,))]


def test_where_it_is_set_to_nothing_no_wish_is_heard():
    talk = two_at_work(critical_ns=0)
    wishes(talk, 100)

    talk.works(1, after_ms=10, ran_ms=10)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_a_more_urgent_class_does_not_wait_for_it():
    talk = Talk(Options(policy="priority"))
    talk.attach(1, BATCH)
    talk.attach(2, NORMAL)
    talk.works(1)
    wishes(talk, 100)

    talk.waits(2, after_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_who_has_waited_too_long_does_not_wait_for_it():
    talk = two_at_work("fifo", max_hold_ns=1000 * MS)
    wishes(talk, 5000)

    talk.works(1, after_ms=1000, ran_ms=1000)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_nobody_who_has_not_the_turn_gets_it_by_a_wish():
    talk = two_at_work()

    wishes(talk, 100, process_id=2)

    assert talk.gates == []
    talk.works(1, after_ms=10, ran_ms=10)
    assert talk.gates == [FIRST_GIVES_WAY]


def test_the_bound_begins_anew_once_nobody_was_kept_waiting():
    talk = two_at_work(critical_ns=4 * MS)
    wishes(talk, 100)
    talk.works(1, after_ms=10, ran_ms=10)
    talk.rests(2, after_ms=3)
    talk.works(1, after_ms=20, ran_ms=20)

    talk.waits(2)
    talk.works(1, after_ms=3, ran_ms=3)
    assert talk.gates == []
    talk.works(1, after_ms=1, ran_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_over_time_fair_shares_stay_what_they_are():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.sample(1, critical_until_ns=2**64 - 1)

    got = run(talk, (1, 2), 2000)

    assert got[1] == pytest.approx(got[2], rel=0.05)


def test_who_waits_is_told_why_and_for_how_long():
    talk = two_at_work()
    wishes(talk, 14)
    talk.works(1, after_ms=12, ran_ms=12)

    why = explain(talk.core, talk.core.jobs[2], now_ns=talk.now_ns).summary

    assert "has the gpu and asked not to lose it now (critical: for 2.0 ms more at most)" in why
