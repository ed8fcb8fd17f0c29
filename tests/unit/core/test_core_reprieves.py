"""What a job gets that asks not to lose the GPU now, or not in the middle of an iteration."""

import pytest
from talk import BATCH, MS, NORMAL, Talk, run

from tandemd.core.events import CloseGates, OpenGates
from tandemd.core.explain.explain import explain
from tandemd.core.model import JobClass, Options

FIRST_GIVES_WAY = CloseGates(process_ids=(1,))


def two_at_work(policy="fair", **options):
    """Two processes; the first has the turn and the second waits at its gate."""
    talk = Talk(Options(policy=policy, min_share=0.0, **options))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)
    return talk


def whole_at_work(policy="fair", preemptible=False, **options):
    """Like `two_at_work`, but the first is about to begin an iteration that must not be cut."""
    talk = Talk(Options(policy=policy, min_share=0.0, **options))
    talk.attach(1, BATCH, preemptible=preemptible)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.works(1, after_ms=1, ran_ms=1)
    talk.sample(1, steps=1)
    talk.waits(2)
    return talk


def wishes(talk, for_ms, process_id=1):
    """Asks to keep the GPU for `for_ms` from now on; 0 withdraws it."""
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


@pytest.mark.parametrize("policy", ["fair", "priority"])
@pytest.mark.parametrize(("preemptible", "is_cut"), [(False, False), (True, True), (None, True)])
def test_an_iteration_is_cut_only_where_the_job_lets_it(policy, preemptible, is_cut):
    talk = whole_at_work(policy, preemptible)

    talk.works(1, after_ms=13, ran_ms=13)
    assert bool(talk.gates) is is_cut
    if not is_cut:
        talk.works(1, after_ms=16, ran_ms=16)
        assert talk.gates == []
        talk.sample(1, after_ms=1, exclusive_ns=31 * MS, steps=2)
        assert talk.gates == [FIRST_GIVES_WAY]


def test_a_class_may_have_whole_iterations_and_a_job_of_it_give_them_up():
    for preemptible, is_cut in ((None, False), (True, True)):
        classes = frozenset({JobClass.BATCH})
        talk = whole_at_work(preemptible=preemptible, nonpreemptible_classes=classes)

        talk.works(1, after_ms=13, ran_ms=13)

        assert bool(talk.gates) is is_cut


def test_it_holds_from_when_it_is_said():
    talk = whole_at_work(preemptible=None)
    talk.update(1, job_class=BATCH, preemptible=False)

    talk.works(1, after_ms=13, ran_ms=13)

    assert talk.gates == []


def test_an_iteration_is_waited_for_no_longer_than_the_bound():
    talk = whole_at_work(nonpreemptible_ns=15 * MS)

    talk.works(1, after_ms=10, ran_ms=10)
    assert talk.gates == []
    assert talk.wake_at_ms == 1  # the quantum's GPU time is over before that bound
    talk.works(1, after_ms=14, ran_ms=14)
    assert talk.gates == []
    talk.works(1, after_ms=1, ran_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_where_none_is_known_the_turn_goes_on_until_there_is_no_work():
    talk = Talk(Options(policy="fair", min_share=0.0))
    talk.attach(1, BATCH, preemptible=False)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)

    talk.works(1, after_ms=500, ran_ms=500)
    assert talk.gates == []
    talk.rests(1)
    talk.tick(after_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY, OpenGates(process_ids=(2,))]


def test_who_came_first_waits_for_it_under_fifo():
    for preemptible, is_cut in ((False, False), (None, True)):
        talk = Talk(Options(policy="fifo"))
        talk.attach(1, BATCH)
        talk.attach(2, BATCH, preemptible=preemptible)
        talk.works(2)

        talk.works(2, after_ms=1, ran_ms=1)
        talk.waits(1)
        assert talk.gates == ([CloseGates(process_ids=(2,))] if is_cut else [])

        talk.sample(2, after_ms=1, exclusive_ns=2 * MS, steps=1)
        assert not talk.is_open(2)


def test_a_more_urgent_class_cuts_it():
    talk = Talk(Options(policy="priority"))
    talk.attach(1, BATCH, preemptible=False)
    talk.attach(2, NORMAL)
    talk.works(1)

    talk.waits(2, after_ms=1)

    assert talk.gates == [FIRST_GIVES_WAY]


def test_over_time_whole_iterations_get_no_more_than_a_fair_share():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, preemptible=False)
    talk.attach(2, BATCH)

    got = run(talk, (1, 2), 20_000)

    assert got[1] == pytest.approx(got[2], rel=0.1)


def test_who_waits_for_an_iteration_is_told_so_and_so_is_whose_it_is():
    talk = whole_at_work()
    talk.works(1, after_ms=12, ran_ms=12)

    waiting, running = (explain(talk.core, talk.core.jobs[n], now_ns=talk.now_ns) for n in (2, 1))

    told = "has the gpu until its iteration ends (preemptible=no: for 1.0 s more at most)"
    assert told in waiting.summary
    mine = (
        "its equals do not cut its iterations (preemptible=no): its turn is extended by up to 1.0 s"
    )
    assert f"{mine} until one ends" in running.lines
