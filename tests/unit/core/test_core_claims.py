"""What the daemon knows of a job's need for SMs, from its curve and its requests."""

from dataclasses import replace

import pytest
from talk import LATENCY, MS, NORMAL, Talk

from tandemd.core.events import RequestsServed, ScalingTold
from tandemd.core.model import Options, SmSet, Split
from tandemd.core.space.claims import claim_of
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sizing import sizes
from tandemd.core.tuner.latency import RequestKind

# On all SMs, half of an iteration is GPU work and half is host time.
CURVE = Curve(sm_counts=(33, 66, 132), iteration_ns=(25 * MS, 15 * MS, 10 * MS))


@pytest.fixture
def talk():
    talk = Talk(Options(sm_counts={0: 132}))
    talk.attach(1, LATENCY, slo_p99_ns=10 * MS)
    talk.say(ScalingTold(now_ns=talk.now_ns, process_id=1, curve=CURVE, doubt=""))
    return talk


def served(talk, request_ns):
    """One request ends."""
    kind = RequestKind.MARKED
    talk.say(
        RequestsServed(now_ns=talk.now_ns, process_id=1, kind=kind, durations_ns=(request_ns,))
    )


def answer(talk, request_ns):
    for _ in range(11):
        talk.now_ns += 20 * MS
        served(talk, request_ns)


def claim(talk):
    return claim_of(talk.core.jobs[1], 0, talk.core.options)


def size(talk):
    (found,) = sizes([claim(talk)], 4, 33)
    return found


def test_before_there_are_requests_an_iteration_is_one(talk):
    assert claim(talk).slo_ns == 9 * MS
    assert size(talk).required_sms == 0
    assert "no number of SMs keeps its limit" in size(talk).why


def test_pauses_of_the_host_between_requests_are_no_part_of_what_a_limit_takes(talk):
    answer(talk, 5 * MS)  # of an iteration of 10 ms

    assert claim(talk).slo_ns == (9 + 5) * MS
    assert size(talk).required_sms == 132  # on 66 SMs its work takes 10 ms


def test_what_more_sms_shorten_is_no_pause_but_a_larger_request(talk):
    answer(talk, 4 * MS)  # where 5 ms were recorded

    assert claim(talk).slo_ns == (9 * 5 / 4 + 5) * MS
    assert size(talk).required_sms == 66  # a usual request takes 8 ms there


def test_a_request_of_several_iterations_leaves_each_its_part_of_the_limit(talk):
    answer(talk, 20 * MS)

    assert claim(talk).slo_ns == 4.5 * MS
    assert size(talk).required_sms == 0


@pytest.mark.parametrize(
    ("curve", "why"),
    [
        (CURVE, "a set would not hold it: its streams stay on the whole gpu"),
        (None, "how it scales is not known: graphs only"),
    ],
)
def test_why_a_curve_says_nothing_of_a_set(curve, why):
    split = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=frozenset({0}), splits=split))
    talk.attach(1)
    talk.sample(1, runs_graphs=curve is not None)
    told = ScalingTold(now_ns=talk.now_ns, process_id=1, curve=curve, doubt="graphs only")
    talk.say(told)

    assert size(talk).why == why


def test_a_set_that_requests_size_comes_to_rest_where_they_keep_their_limit():
    """Figures from other SMs say nothing about pauses; else each step would trigger another."""
    split = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=frozenset({0}), splits=split))
    counts = tuple(range(8, 129, 8))
    work_ns = {sms: 4 * MS * 128 // sms for sms in counts}  # of a request; then 6 ms of pause
    curve = Curve(sm_counts=counts, iteration_ns=tuple(6 * MS + work_ns[n] for n in counts))
    for number in (1, 2):
        talk.attach(number, LATENCY if number == 1 else NORMAL, slo_p99_ns=10 * MS * (number == 1))
    sizes_seen = []
    for round_ in range(45_000 // 50):
        talk.now_ns += 50 * MS
        for number in (1, 2):
            where = talk.core.jobs[number].set
            talk.sample(number, in_set=SmSet(where.first, where.count, 8))
        sms = talk.core.jobs[1].set.count * 8
        served(talk, work_ns[sms])
        if round_ % 100 == 40:  # new curves keep arriving, each slightly different
            noisy = replace(curve, recorded_ns=round_)
            for number in (1, 2):
                talk.say(ScalingTold(now_ns=talk.now_ns, process_id=number, curve=noisy, doubt=""))
        sizes_seen.append(sms)

    needed = next(sms for sms in counts if work_ns[sms] <= 9 * MS)
    after = sizes_seen[len(sizes_seen) // 3 :]
    assert set(after) == {after[-1]}
    assert needed <= after[-1] <= needed + 8
    assert min(sizes_seen) >= needed
