"""Two jobs that share a turn stay together only while they get more done that way."""

import pytest
from talk import BATCH, MS, Talk

from tandemd.core.events import WorkClassified
from tandemd.core.explain.explain import explain
from tandemd.core.model import Bound, Mix, Options
from tandemd.core.turns.trials import ANEW_NS, REMEMBER_NS, TRIAL_STEPS

ALONE_MS = 10  # one iteration of either job


@pytest.fixture
def talk():
    """Two jobs bound by different resources, each of which has run alone."""
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    for process_id, bound in ((1, Bound.COMPUTE), (2, Bound.MEMORY)):
        talk.attach(process_id, BATCH)
        shares = tuple(float(b is bound) for b in Bound)
        mix = Mix(shares=shares, operations=100, untimed=0, at_ns=0)
        talk.say(WorkClassified(now_ns=talk.now_ns, process_id=process_id, mix=mix))
    measure_alone(talk)
    return talk


def measure_alone(talk):
    for process_id in (1, 2):
        talk.works(process_id)
        for _ in range(TRIAL_STEPS):
            iterate(talk, process_id, after_ms=ALONE_MS)
        talk.rests(process_id)
        talk.tick(after_ms=2)


def iterate(talk, *processes, after_ms):
    for process_id in processes:
        steps = talk.usages[process_id].steps + 1
        talk.sample(process_id, after_ms=after_ms, busy=True, waiting_threads=0, steps=steps)
        after_ms = 0


def together(talk, *, each_ms, for_ms=2 * TRIAL_STEPS * ALONE_MS):
    """Both have work and end an iteration every `each_ms` while both may run."""
    talk.works(1, 2)
    end_ns = talk.now_ns + for_ms * MS
    while talk.now_ns < end_ns and talk.open_processes() == {1, 2}:
        iterate(talk, 1, 2, after_ms=each_ms)


def told(talk):
    return " | ".join(explain(talk.core, talk.core.job(1), talk.now_ns).lines)


@pytest.mark.parametrize(("each_ms", "stay"), [(12, True), (25, False)])
def test_a_pair_lasts_only_where_it_gets_more_done_than_one_after_the_other(talk, each_ms, stay):
    together(talk, each_ms=each_ms)

    assert (talk.open_processes() == {1, 2}) is stay
    gain = 2 * ALONE_MS / each_ms
    found = float(told(talk).split("tried together they got ")[1].split()[0])
    assert found == pytest.approx(gain, abs=2 / TRIAL_STEPS)
    assert ("tried again in 60 s" in told(talk)) is not stay
    undone = [line for _, line in talk.core.job(1).story if "trial of sharing turns failed" in line]
    assert len(undone) == (0 if stay else 1)


def test_a_pair_that_was_undone_is_tried_again_after_a_while(talk):
    together(talk, each_ms=25)
    for after_ns, opened in ((REMEMBER_NS - 100 * MS, 1), (200 * MS, 2)):
        talk.rests(1, 2)
        talk.tick(after_ms=after_ns / MS)
        talk.works(1, 2)
        assert len(talk.open_processes()) == opened


def test_jobs_whose_iterations_are_not_known_are_not_judged():
    talk = Talk(Options(policy="pair", mps_gpus=frozenset({0})))
    for process_id, bound in ((1, Bound.COMPUTE), (2, Bound.MEMORY)):
        talk.attach(process_id, BATCH)
        shares = tuple(float(b is bound) for b in Bound)
        mix = Mix(shares=shares, operations=100, untimed=0, at_ns=0)
        talk.say(WorkClassified(now_ns=talk.now_ns, process_id=process_id, mix=mix))
    talk.works(1, 2)

    for _ in range(100):
        talk.works(1, 2, after_ms=50, ran_ms=25)

    assert talk.open_processes() == {1, 2}
    assert "tried" not in told(talk)


def test_a_pair_that_lasts_is_measured_alone_again_now_and_then(talk):
    together(talk, each_ms=12, for_ms=ANEW_NS / MS - 1000)
    assert talk.open_processes() == {1, 2}
    together(talk, each_ms=12, for_ms=2000)

    assert len(talk.open_processes()) == 1
    assert "now measured alone again" in told(talk)
    assert [alone for _, alone in talk.core.to_classify()] != []  # and they are classified anew
    talk.rests(1, 2, after_ms=1)
    talk.tick(after_ms=2)
    measure_alone(talk)
    talk.works(1, 2)

    assert talk.open_processes() == {1, 2}


def test_who_has_left_is_forgotten(talk):
    together(talk, each_ms=25)
    talk.leave(2)
    talk.attach(2, BATCH)

    assert "tried" not in told(talk)
