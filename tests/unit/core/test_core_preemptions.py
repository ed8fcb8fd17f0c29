"""Conversations that count how often jobs with work lost the turn, and why."""

import pytest
from talk import BATCH, MS, NORMAL, Talk

from tandemd.core.events import WorkClassified
from tandemd.core.model import Bound, Mix, Options, Preemption


def lost(talk, job_id):
    """Counts, by reason, how often a job lost the turn."""
    counts = talk.core.jobs[job_id].preemptions
    return {why.name.lower(): counts[why] for why in Preemption if counts[why]}


def two_at_work(policy="fair", classes=(BATCH, BATCH), **options):
    """The first has the turn and the second waits at its gate."""
    talk = Talk(Options(policy=policy, **options))
    for process_id, job_class in enumerate(classes, 1):
        talk.attach(process_id, job_class)
    talk.works(1)
    talk.waits(2)
    return talk


def test_each_quantum_that_ends_before_the_work_does_is_counted():
    talk = two_at_work()
    talk.works(1, after_ms=9, ran_ms=9)
    assert lost(talk, 1) == {}

    talk.works(1, after_ms=1, ran_ms=1)
    assert lost(talk, 1) == {"quantum": 1}
    talk.waits(1, after_ms=1)
    talk.works(2, after_ms=10, ran_ms=10)
    talk.waits(2, after_ms=1)
    talk.works(1, after_ms=10, ran_ms=10)

    assert (lost(talk, 1), lost(talk, 2)) == ({"quantum": 2}, {"quantum": 1})


def test_who_gives_the_turn_up_has_not_lost_it():
    talk = two_at_work()

    talk.rests(1, after_ms=1)
    talk.tick(after_ms=1)

    assert talk.open_processes() == {2}
    assert lost(talk, 1) == {}


def test_a_more_urgent_class_takes_the_turn():
    talk = two_at_work("priority", (NORMAL, BATCH), min_share=0.0)
    talk.rests(1)
    talk.tick(after_ms=2)
    talk.works(2)

    talk.waits(1)

    assert (lost(talk, 1), lost(talk, 2)) == ({}, {"class": 1})


def test_a_less_urgent_class_that_is_owed_its_share_does():
    talk = two_at_work("priority", (NORMAL, BATCH), min_share=0.1, share_period_ns=100 * MS)

    talk.works(1, after_ms=101, ran_ms=101)

    assert lost(talk, 1) == {"min_share": 1}


def test_under_fifo_who_came_before_does_and_who_was_held_for_too_long():
    talk = two_at_work("fifo", max_hold_ns=50 * MS)
    talk.rests(1)
    talk.tick(after_ms=2)
    talk.works(2)

    talk.waits(1, after_ms=1)
    assert lost(talk, 2) == {"arrival": 1}
    talk.waits(2, after_ms=1)
    talk.works(1, after_ms=49, ran_ms=49)

    assert lost(talk, 1) == {"max_hold": 1}


def paired(*bounds):
    """The first two share the turn, and all have work."""
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    for process_id, bound in enumerate(bounds, 1):
        talk.attach(process_id, BATCH)
        bind(talk, process_id, bound)
    talk.works(1)
    talk.waits(*range(2, len(bounds) + 1))
    talk.works(2)
    return talk


def bind(talk, process_id, bound):
    shares = tuple(float(each is bound) for each in Bound)
    mix = Mix(shares=shares, operations=100, untimed=0, at_ns=0)
    talk.say(WorkClassified(now_ns=talk.now_ns, process_id=process_id, mix=mix))


def test_who_may_not_share_the_turn_any_more_loses_its_part():
    talk = paired(Bound.COMPUTE, Bound.MEMORY)

    bind(talk, 2, Bound.COMPUTE)

    assert (lost(talk, 1), lost(talk, 2)) == ({}, {"partner": 1})


def test_of_two_who_share_the_turn_one_may_keep_it():
    talk = paired(Bound.MEMORY, Bound.COMPUTE, Bound.MEMORY)

    talk.works(1, after_ms=11, ran_ms=11)

    assert (lost(talk, 1), lost(talk, 2)) == ({"quantum": 1}, {})


@pytest.mark.parametrize("ends", ["pause", "leave"])
def test_who_is_paused_or_gone_lost_it_to_nobody(ends):
    talk = two_at_work()
    talk.attach(3, BATCH, job_id=1)  # keeps the job alive

    getattr(talk, ends)(1)
    talk.tick(after_ms=2)

    assert talk.core.rings.turns[frozenset({0}), 0].holder == (1000, "j:2")
    assert lost(talk, 1) == {}


def test_what_was_counted_stays_when_processes_go_and_the_policy_changes():
    talk = two_at_work()
    talk.attach(3, BATCH, job_id=1)
    talk.works(1, after_ms=10, ran_ms=10)

    talk.leave(1)
    talk.policy("fifo")

    assert lost(talk, 1) == {"quantum": 1}


def test_all_jobs_of_a_group_lose_the_turn_when_it_does():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, group="ranks")
    talk.attach(2, BATCH, group="ranks")
    talk.attach(3, BATCH)
    talk.works(1)
    talk.waits(3)

    talk.works(1, after_ms=10, ran_ms=10)

    assert lost(talk, 1) == lost(talk, 2) == {"quantum": 1}
