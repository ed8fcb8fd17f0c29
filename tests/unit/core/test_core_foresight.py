"""Which pairs are tried first and which are not tried, judged by earlier measurements."""

import pytest
from talk import MS, NORMAL, Talk

from tandemd.core.events import KeepTrials, RequestsServed, WorkClassified
from tandemd.core.explain.explain import explain
from tandemd.core.model import Bound, Mix, Options
from tandemd.core.tuner.latency import RequestKind
from tandemd.core.turns.trials import ALONE_STEPS, TRIAL_STEPS, Measured

FIRST, SECOND, THIRD = (1000, "j:1"), (1000, "j:2"), (1000, "j:3")
STEP_MS = 10


def classify(talk, process_id, bound):
    shares = tuple(float(each is bound) for each in Bound)
    mix = Mix(shares=shares, operations=100, untimed=0, at_ns=0)
    talk.say(WorkClassified(now_ns=talk.now_ns, process_id=process_id, mix=mix))


@pytest.fixture
def talk():
    """A compute-bound job, and two that may run beside it."""
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    for process_id, bound in ((1, Bound.COMPUTE), (2, Bound.MEMORY), (3, Bound.COPY)):
        talk.attach(process_id, NORMAL, slo_p99_ns=100 * MS if process_id == 1 else 0)
        classify(talk, process_id, bound)
    return talk


def turns_of(talk):
    (turns,) = talk.core.rings.turns.values()
    return turns


def teach(talk, **factors):
    """Many trials measured this factor for each job beside the first, and for the first as well."""
    keys = {"second": SECOND, "third": THIRD}
    for name, factor in factors.items():
        key = keys[name]
        both = [
            Measured(key=FIRST, beside=(key,), factor=factor),
            Measured(key=key, beside=(FIRST,), factor=factor),
        ]
        turns_of(talk).foresight.learn(both * 40, talk.core.groups.values())


def companion(talk):
    """Return the companion in the first job's turn."""
    talk.works(1)
    talk.waits(2, 3)
    assert turns_of(talk).holder == FIRST
    return turns_of(talk).companion


def told(talk, job_id=1):
    return " | ".join(explain(talk.core, talk.core.jobs[job_id], talk.now_ns).lines)


def served(talk, *durations_ms):
    durations_ns = tuple(each * MS for each in durations_ms)
    kind = RequestKind.MARKED
    talk.say(RequestsServed(now_ns=talk.now_ns, process_id=1, kind=kind, durations_ns=durations_ns))


def test_before_anything_was_measured_they_come_in_the_order_of_the_policy(talk):
    assert companion(talk) == SECOND
    assert "times as long beside" not in told(talk)


@pytest.mark.parametrize(
    ("second", "third", "first_in_line"), [(1.9, 1.1, THIRD), (1.1, 1.9, SECOND)]
)
def test_who_is_to_slow_the_holder_down_least_goes_first(talk, second, third, first_in_line):
    teach(talk, second=second, third=third)

    assert companion(talk) == first_in_line
    assert f"should take {second:.2f} times as long beside j-2" in told(talk)


def test_nobody_joins_who_would_make_a_job_miss_its_objective(talk):
    teach(talk, second=1.5, third=1.8)
    served(talk, *[80] * 100)

    assert companion(talk) is None
    assert "takes turns with j-2" in told(talk)
    assert "beside the other, j-1 would miss its objective" in told(talk)
    served(talk, *[60] * 5000)
    talk.tick(after_ms=20)
    talk.works(1)
    assert turns_of(talk).companion == SECOND


def test_a_job_that_misses_already_is_no_reason(talk):
    teach(talk, second=1.5, third=1.8)
    served(talk, *[180] * 100)

    assert companion(talk) == SECOND


def test_of_work_that_nobody_knows_nothing_is_foretold(talk):
    teach(talk, second=1.5, third=1.8)
    talk.attach(4, NORMAL)
    groups = talk.core.groups
    foresight = turns_of(talk).foresight

    assert foresight.slowdown(groups[FIRST], groups[1000, "j:4"]) is None
    assert foresight.cost(groups[FIRST], groups[1000, "j:4"]) == 0
    count = foresight.model.count
    foresight.learn([Measured(key=FIRST, beside=((1000, "j:4"),), factor=2.0)], groups.values())
    assert foresight.model.count == count


def test_trials_teach_it(talk):
    for process_id in (1, 2):
        talk.works(process_id)
        for _ in range(TRIAL_STEPS):
            iterate(talk, process_id, after_ms=STEP_MS)
        talk.rests(process_id)
        talk.tick(after_ms=2)
    talk.works(1, 2)
    for _ in range(2 * TRIAL_STEPS + ALONE_STEPS):
        iterate(talk, 1, 2, after_ms=14)

    foresight, groups = turns_of(talk).foresight, talk.core.groups
    assert foresight.model.count >= 2
    assert foresight.slowdown(groups[FIRST], groups[SECOND]) == pytest.approx(1.4, abs=0.1)


def test_what_was_learnt_stays_with_the_gpu_when_its_jobs_have_gone(talk):
    teach(talk, second=1.9, third=1.1)
    for process_id in (1, 2, 3):
        talk.leave(process_id)

    for process_id, bound in ((1, Bound.COMPUTE), (2, Bound.MEMORY), (3, Bound.COPY)):
        talk.attach(process_id, NORMAL)
        classify(talk, process_id, bound)

    assert companion(talk) == THIRD


def test_what_is_measured_is_to_be_kept_and_recalled_it_decides_as_before(talk):
    teach(talk, second=1.9, third=1.1)
    talk.works(1)
    (kept,) = [action for action in talk.actions if isinstance(action, KeepTrials)]
    assert companion(talk) == THIRD

    again = having_recalled(kept.trials)

    assert (kept.gpu, len(kept.trials)) == (0, 160)
    assert companion(again) == THIRD
    assert "160 measurements on such a gpu (160 from before the daemon started)" in told(again)
    assert companion(having_recalled(())) == SECOND


def having_recalled(trials):
    """A daemon that was started when the jobs were already there."""
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    talk.core.tuning.recall({0: trials})
    for process_id, bound in ((1, Bound.COMPUTE), (2, Bound.MEMORY), (3, Bound.COPY)):
        talk.attach(process_id, NORMAL)
        classify(talk, process_id, bound)
    return talk


def iterate(talk, *processes, after_ms):
    for process_id in processes:
        steps = talk.usages[process_id].steps + 1
        talk.sample(process_id, after_ms=after_ms, busy=True, waiting_threads=0, steps=steps)
        after_ms = 0
