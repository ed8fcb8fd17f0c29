"""What is known of a job's use for SMs, from its curve and from what its requests take."""

import pytest
from talk import LATENCY, MS, Talk

from tandemd.core.claims import claim_of
from tandemd.core.events import RequestsServed, ScalingTold
from tandemd.core.latency import RequestKind
from tandemd.core.model import Options
from tandemd.core.scaling import Curve
from tandemd.core.sizing import sizes

# Half of an iteration on all SMs is work for them, half of it the host's.
CURVE = Curve(sm_counts=(33, 66, 132), iteration_ns=(25 * MS, 15 * MS, 10 * MS))


@pytest.fixture
def talk():
    talk = Talk(Options(sm_counts={0: 132}))
    talk.attach(1, LATENCY, slo_p99_ns=10 * MS)
    talk.say(ScalingTold(now_ns=talk.now_ns, process_id=1, curve=CURVE, doubt=""))
    return talk


def answer(talk, request_ns):
    for _ in range(11):
        talk.now_ns += 20 * MS
        served = RequestsServed(
            now_ns=talk.now_ns, process_id=1, kind=RequestKind.MARKED, durations_ns=(request_ns,)
        )
        talk.say(served)


def claim(talk):
    return claim_of(talk.core.jobs[1], 0, talk.core.options)


def size(talk):
    (found,) = sizes([claim(talk)], 4, 33)
    return found


def test_before_there_are_requests_an_iteration_is_one(talk):
    assert claim(talk).slo_ns == 9 * MS
    assert size(talk).required_sms == 0
    assert "no number keeps its limit" in size(talk).why


def test_pauses_of_the_host_between_requests_are_no_part_of_what_a_limit_takes(talk):
    answer(talk, 4 * MS)  # of an iteration of 10

    assert claim(talk).slo_ns == (9 + 6) * MS
    assert size(talk).required_sms == 66


def test_a_request_of_several_iterations_leaves_each_its_part_of_the_limit(talk):
    answer(talk, 20 * MS)

    assert claim(talk).slo_ns == 4.5 * MS
    assert size(talk).required_sms == 0
