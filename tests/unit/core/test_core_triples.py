"""A third job joins two others only where the model predicts that three get more done."""

import pytest
from talk import MS, NORMAL, Talk

from tandemd.core.events import KeepTrials, RequestsServed, WorkClassified
from tandemd.core.explain.explain import explain
from tandemd.core.model import Bound, Mix, Options
from tandemd.core.tuner.latency import RequestKind
from tandemd.core.turns.trials import ANEW_NS, TRIAL_STEPS, Measured

BOUNDS = {1: Bound.COMPUTE, 2: Bound.MEMORY, 3: Bound.COPY}
KEYS = {number: (1000, f"j:{number}") for number in BOUNDS}
STEP_MS = 10


@pytest.fixture
def talk():
    """Three jobs bound by different resources, so that any two may share a turn."""
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    for process_id, bound in BOUNDS.items():
        talk.attach(process_id, NORMAL, slo_p99_ns=100 * MS if process_id == 1 else 0)
        shares = tuple(float(each is bound) for each in Bound)
        mix = Mix(shares=shares, operations=100, untimed=0, at_ns=0)
        talk.say(WorkClassified(now_ns=talk.now_ns, process_id=process_id, mix=mix))
    return talk


def teach(talk, factor, *numbers):
    """Many trials measured that each of these took `factor` times as long beside the others."""
    (turns,) = talk.core.rings.turns.values()
    measured = [
        Measured(
            key=KEYS[number],
            beside=tuple(KEYS[other] for other in numbers if other != number),
            factor=factor,
        )
        for number in numbers
    ]
    turns.foresight.learn(measured * 40, talk.core.groups.values())


def teach_pairs(talk, factor):
    for pair in ((1, 2), (2, 3), (1, 3)):
        teach(talk, factor, *pair)


def all_work(talk):
    """All have work and the first has the turn; returns the open processes."""
    talk.works(1)
    talk.waits(2, 3)
    return talk.open_processes()


def iterate(talk, *processes, after_ms):
    for process_id in processes:
        steps = talk.usages[process_id].steps + 1
        talk.sample(process_id, after_ms=after_ms, busy=True, waiting_threads=0, steps=steps)
        after_ms = 0


def measure_alone(talk):
    for process_id in BOUNDS:
        talk.works(process_id)
        for _ in range(TRIAL_STEPS):
            iterate(talk, process_id, after_ms=STEP_MS)
        talk.rests(process_id)
        talk.tick(after_ms=2)


def together(talk, *, each_ms, for_ms=2 * TRIAL_STEPS * STEP_MS):
    """All have work and end an iteration every `each_ms` while all three may run."""
    talk.works(*BOUNDS)
    end_ns = talk.now_ns + for_ms * MS
    while talk.now_ns < end_ns and talk.open_processes() == set(BOUNDS):
        iterate(talk, *BOUNDS, after_ms=each_ms)


def told(talk, number=1):
    return " | ".join(explain(talk.core, talk.core.jobs[number], talk.now_ns).lines)


def test_before_anything_was_measured_there_is_no_third(talk):
    assert len(all_work(talk)) == 2
    assert "the three" not in told(talk)


@pytest.mark.parametrize(("factor", "running"), [(1.1, {1, 2, 3}), (1.9, {1, 2})])
def test_a_third_joins_where_pairs_tell_that_three_get_more_done(talk, factor, running):
    teach_pairs(talk, factor)

    assert len(all_work(talk)) == len(running)
    assert ("the three should get" in told(talk)) is (len(running) == 3)


def test_what_triples_told_counts_for_triples_and_not_for_pairs(talk):
    teach_pairs(talk, 1.1)
    for _ in range(3):
        teach(talk, 2.5, 1, 2, 3)
        teach_pairs(talk, 1.1)

    assert len(all_work(talk)) == 2


def test_three_that_are_told_to_run_well_do_although_pairs_would_not_tell(talk):
    teach_pairs(talk, 1.9)
    assert len(all_work(talk)) == 2
    talk.rests(*BOUNDS)
    talk.tick(after_ms=50)

    for _ in range(3):
        teach(talk, 1.2, 1, 2, 3)
        teach_pairs(talk, 1.9)

    assert all_work(talk) == {1, 2, 3}


def test_a_third_that_makes_one_of_them_miss_its_objective_stays_out(talk):
    teach_pairs(talk, 1.1)
    for p99_ms, count in ((60, 3), (87, 2)):
        served = RequestsServed(
            now_ns=talk.now_ns,
            process_id=1,
            kind=RequestKind.MARKED,
            durations_ns=(p99_ms * MS,) * 5000,
        )
        talk.say(served)
        assert len(all_work(talk)) == count
        talk.rests(*BOUNDS)
        talk.tick(after_ms=50)


def test_a_third_leaves_when_it_has_nothing_to_do_and_the_two_go_on(talk):
    teach_pairs(talk, 1.1)
    all_work(talk)
    (turns,) = talk.core.rings.turns.values()
    third = next(number for number, key in KEYS.items() if key == turns.third)
    others = BOUNDS.keys() - {third}
    talk.works(*BOUNDS)

    talk.rests(third, after_ms=1)
    talk.works(*others, after_ms=2)

    assert talk.open_processes() == others
    assert turns.third is None


def test_who_leaves_the_gpu_holds_no_part_of_a_turn(talk):
    teach_pairs(talk, 1.1)
    all_work(talk)
    talk.works(*BOUNDS)

    for number in (1, 2):
        talk.leave(number)

    assert talk.open_processes() == {3}
    assert [(turns.companion, turns.third) for turns in talk.core.rings.turns.values()] == [
        (None, None)
    ]


@pytest.mark.parametrize(
    ("each_ms", "stay", "is_undone"),
    [
        (12, True, False),
        (22, False, False),  # beats one after the other, but a pair is predicted to get more done
        (31, False, True),
    ],
)
def test_three_stay_together_only_while_they_get_more_done_than_two(talk, each_ms, stay, is_undone):
    measure_alone(talk)
    teach_pairs(talk, 1.2)  # so a pair gets 1.67 times as much done
    (turns,) = talk.core.rings.turns.values()
    pair = [talk.core.groups[KEYS[number]] for number in (1, 2)]

    together(talk, each_ms=each_ms)

    three = talk.core.groups.values()
    assert (talk.open_processes() == {1, 2, 3}) is stay
    assert turns.trials.is_apart(three, talk.now_ns) is is_undone
    assert not turns.trials.is_apart(pair, talk.now_ns)


def test_what_three_have_measured_is_kept_as_of_three(talk):
    measure_alone(talk)
    teach_pairs(talk, 1.1)
    (turns,) = talk.core.rings.turns.values()
    turns.foresight.take_learnt()
    talk.works(*BOUNDS)
    kept = []
    for _ in range(TRIAL_STEPS + 1):
        for process_id in BOUNDS:
            iterate(talk, process_id, after_ms=4)
            kept += [a for a in talk.actions if isinstance(a, KeepTrials)]

    trials = [trial for action in kept for trial in action.trials]
    assert [len(trial.others) for trial in trials] == [2, 2, 2]
    assert [trial.factor for trial in trials] == pytest.approx([1.2] * 3, abs=0.1)


def test_three_that_last_are_measured_alone_again_now_and_then(talk):
    measure_alone(talk)
    teach_pairs(talk, 1.1)
    together(talk, each_ms=12)
    assert talk.open_processes() == {1, 2, 3}
    talk.rests(*BOUNDS)
    talk.tick(after_ms=ANEW_NS / MS)
    together(talk, each_ms=12)

    assert len(talk.open_processes()) < 3
    (turns,) = talk.core.rings.turns.values()
    assert turns.trials.is_apart(talk.core.groups.values(), talk.now_ns)
    talk.rests(*BOUNDS)
    talk.tick(after_ms=5)
    measure_alone(talk)

    assert all_work(talk) == {1, 2, 3}
