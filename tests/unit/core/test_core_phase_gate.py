"""Conversations under the policy `phases`: who is in which phase, and who waits for it."""

import pytest
from talk import BATCH, LATENCY, MS, Talk

from tandemd.core.events import SetPhaseLimit, SetStepLimit
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options, WaitReason
from tandemd.core.words import fnv1a

F, B = fnv1a(b"forward"), fnv1a(b"backward")
MPS = {"mps_gpus": frozenset({0}), "max_hold_ns": 100 * MS}


def conversation(policy="phases", **options):
    return Talk(Options(policy=policy, **(MPS | options)))


@pytest.fixture
def talk():
    """Job 1 is in its forward pass, and 2 begins its backward pass."""
    found = conversation()
    for number in (1, 2):
        found.attach(number)
    begins(found, 1, F)
    runs(found, 1)
    begins(found, 2, B)
    return found


def begins(talk, number, phase, *, busy=False):
    """The job marks the beginning of a phase and makes its first submission in it."""
    count = talk.usages[number].begun_phases + 1
    passer = talk.core.phases.passer(number)
    stops = passer is not None and 0 < passer.phases_allowed <= count
    figures = {"begun_phases": count, "phase_hash": phase, "busy": busy}
    if stops:
        figures |= {"stopped_phases": count, "waiting_threads": 1, "wait_reason": WaitReason.GATE}
    return talk.sample(number, after_ms=1, **figures)


def runs(talk, number):
    return talk.works(number, after_ms=1, ran_ms=1)


def drains(talk, number):
    return talk.sample(number, after_ms=1, busy=False)


def stands(talk, number):
    return talk.core.phases.passer(number).stands


def summary(talk, number):
    return explain(talk.core, talk.core.jobs[number], talk.now_ns).summary


def lines(talk, number):
    return explain(talk.core, talk.core.jobs[number], talk.now_ns).lines


def test_a_phase_waits_for_the_end_of_the_same_one_of_another(talk):
    begins(talk, 2, F)

    assert stands(talk, 2)
    assert talk.core.groups[(1000, "j:2")].is_kept
    assert summary(talk, 2) == "waits 0.0 ms for phase forward: j-1 is in it; at most 100 ms more"
    assert "is in phase forward: others wait to begin theirs of that name" in lines(talk, 1)

    begins(talk, 1, B)

    assert not stands(talk, 1)
    assert not stands(talk, 2)
    assert talk.of(SetPhaseLimit, 2)
    assert 2 in talk.open_processes()


def test_without_the_policy_nobody_stands():
    talk = conversation(policy="priority")
    for number in (1, 2):
        talk.attach(number)
        begins(talk, number, F)

    assert talk.core.phases.passer(2) is None
    assert not [a for a in talk.actions if isinstance(a, SetPhaseLimit)]


def test_a_phase_lasts_until_its_work_has_drained(talk):
    begins(talk, 2, F)
    runs(talk, 1)

    begins(talk, 1, B, busy=True)

    assert stands(talk, 1)  # 1 waits too: new work of it would hide the drain
    assert stands(talk, 2)
    drains(talk, 1)
    assert not stands(talk, 1)
    assert not stands(talk, 2)


def test_work_outside_any_phase_does_not_end_the_one_before(talk):
    begins(talk, 2, F)
    runs(talk, 1)

    talk.sample(1, after_ms=1, phase_hash=0, busy=True)
    assert stands(talk, 2)
    talk.sample(1, after_ms=1, busy=False)

    assert not stands(talk, 2)


def test_of_two_that_wait_the_one_comes_that_has_waited_for_longest_since_it_was_in_it(talk):
    talk.attach(3)
    begins(talk, 3, B)
    begins(talk, 2, F)
    begins(talk, 3, F)
    begins(talk, 1, B)  # 1 leaves the phase, and 2 begins it
    runs(talk, 2)
    begins(talk, 1, F)
    assert (stands(talk, 1), stands(talk, 2), stands(talk, 3)) == (True, False, True)

    begins(talk, 2, B)
    drains(talk, 2)

    assert (stands(talk, 1), stands(talk, 3)) == (True, False)


def test_the_phase_that_one_was_in_before_it_had_company_counts_as_well():
    talk = conversation()
    talk.attach(1)
    begins(talk, 1, F)
    for number in (2, 3):
        talk.attach(number)
    begins(talk, 3, F)
    begins(talk, 1, B)  # 3 begins its forward pass
    runs(talk, 3)
    for number in (1, 2):
        begins(talk, number, F)

    begins(talk, 3, B)
    drains(talk, 3)

    assert (stands(talk, 1), stands(talk, 2)) == (True, False)


def test_nobody_waits_for_a_phase_on_another_gpu():
    talk = conversation(mps_gpus=frozenset({0, 1}))
    for number in (1, 2):
        talk.attach(number)
    for number in (3, 4):
        talk.attach(number, gpu=1)
    begins(talk, 1, F)

    begins(talk, 3, F)

    assert not stands(talk, 3)


def test_who_stands_wants_no_turn(talk):
    begins(talk, 2, F)

    assert not talk.core.groups[(1000, "j:2")].wants


def test_the_first_phase_of_a_new_job_waits_as_well():
    talk = conversation()
    talk.attach(1)
    begins(talk, 1, F)
    talk.attach(2)

    assert talk.of(SetPhaseLimit, 2) == [SetPhaseLimit(process_id=2, phases=1)]
    begins(talk, 2, F)

    assert stands(talk, 2)


def test_nobody_stands_for_longer_than_the_longest_hold(talk):
    begins(talk, 2, F)

    for _ in range(99):
        runs(talk, 1)
    assert stands(talk, 2)
    runs(talk, 1)

    assert not stands(talk, 2)


def test_who_wants_nothing_any_more_is_in_nobodys_way(talk):
    talk.core.options = conversation(memory_quiet_ns=20 * MS).options
    begins(talk, 2, F)
    talk.rests(1, after_ms=1)

    talk.tick(after_ms=19)
    assert stands(talk, 2)
    talk.tick(after_ms=1)

    assert not stands(talk, 2)


@pytest.mark.parametrize("how", ["ends", "is paused"])
def test_who_is_alone_goes_on(talk, how):
    begins(talk, 2, F)

    if how == "ends":
        talk.leave(1)
    else:
        talk.pause(1)

    assert talk.of(SetPhaseLimit, 2) == [SetPhaseLimit(process_id=2, phases=0)]
    assert not talk.core.groups[(1000, "j:2")].is_kept
    assert talk.core.phases.wake_at_ns is None


def test_another_policy_lets_everybody_go_on_before_it_holds_them_itself(talk):
    begins(talk, 2, F)

    talk.policy("curves")

    limits = [a for a in talk.actions if isinstance(a, SetPhaseLimit | SetStepLimit)]
    assert [type(a) for a in limits[:2]] == [SetPhaseLimit] * 2
    assert talk.core.phases.passer(1) is None


@pytest.mark.parametrize(
    ("attached", "options", "why"),
    [
        ({}, {"mps_gpus": frozenset()}, "kernels of two processes overlap only under mps"),
        ({"job_class": LATENCY}, {}, "jobs of the latency class do not wait"),
    ],
)
def test_some_are_left_alone_and_told_why(attached, options, why):
    talk = conversation(**options)
    talk.attach(1, **attached)
    talk.attach(2)
    for number in (1, 2):
        begins(talk, number, F)

    assert talk.core.phases.passer(1) is None
    assert any(why in line for line in lines(talk, 1))


def test_one_that_marks_nothing_is_told_how(talk):
    talk.attach(3, BATCH)
    talk.waits(3, after_ms=1)

    assert any("marks no phases (tandem.phase)" in line for line in lines(talk, 3))


def test_work_that_does_not_drain_stands_no_longer_than_max_hold(talk):
    begins(talk, 2, F, busy=True)

    talk.tick(after_ms=99)
    assert stands(talk, 2)
    talk.tick(after_ms=1)

    assert not stands(talk, 2)


def test_the_next_process_of_a_job_is_not_kept_for_one_that_stood():
    talk = conversation()
    talk.register(2)
    for number in (1, 2):
        talk.attach(number)
        begins(talk, number, F)
    assert talk.core.groups[(1000, "j:2")].is_kept

    talk.leave(2)
    talk.leave(1)
    talk.attach(3, job_id=2)
    talk.waits(3)

    assert talk.core.groups[(1000, "j:2")].wants
