"""Sizes of the jobs on one GPU, checked against a model that tries every division."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemd.core.model import JobClass
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sizing import Claim, sizes

PARTS, SMS = 16, 8
COUNTS = tuple(range(SMS, SMS * PARTS + 1, SMS))
LATENCY, BATCH = JobClass.LATENCY, JobClass.BATCH


def curve(most, work_ns=720_720):
    """Scales linearly up to `most` parts, and not beyond."""
    times = tuple(work_ns // min(parts, most) for parts in range(1, PARTS + 1))
    return Curve(sm_counts=COUNTS, iteration_ns=times)


def claim(name="a", **what):
    return Claim(name=name, **what)


def parts_of(*claims):
    return [size.parts for size in sizes(claims, PARTS, SMS)]


def test_a_job_gets_what_it_has_use_for_and_best_effort_what_is_left():
    (latency, batch) = sizes(
        [claim("l", curve=curve(4), job_class=LATENCY), claim("b", curve=curve(16))], PARTS, SMS
    )

    assert (latency.parts, batch.parts) == (4, 12)
    assert "beyond 32 SMs each SM gains less" in latency.why


def test_less_than_the_knee_will_do_where_a_limit_is_kept_with_less():
    (size,) = sizes([claim(curve=curve(8), slo_ns=180_180, job_class=LATENCY)], PARTS, SMS)

    assert (size.parts, size.required_sms) == (4, 32)
    assert size.why == "beyond 64 SMs each SM gains less, and with 32 it keeps its limit"


def test_a_limit_beyond_the_knee_is_kept_with_what_is_left():
    stairs = Curve(sm_counts=(8, 16, 64), iteration_ns=(800, 400, 300))
    tight = claim(curve=stairs, slo_ns=300, job_class=LATENCY)

    assert parts_of(tight) == [8]
    assert parts_of(tight, claim("b", asked_sms=104)) == [3, 13]


def test_who_says_a_number_gets_it_in_whole_parts():
    assert parts_of(claim(asked_sms=9, curve=curve(16)), claim("b", curve=curve(2))) == [2, 2]


def test_of_whom_nothing_is_known_shares_the_rest_which_is_one_part_at_least():
    (known, unknown) = sizes(
        [claim("k", curve=curve(16)), claim("u", doubt="graphs only")], PARTS, SMS
    )

    assert (known.parts, unknown.parts) == (15, 0)
    assert "graphs only" in unknown.why


def test_of_more_than_there_is_latency_comes_first_and_the_others_are_scaled():
    found = sizes(
        [
            claim("l", asked_sms=64, job_class=LATENCY),
            claim("a", asked_sms=96),
            claim("b", asked_sms=32),
        ],
        PARTS,
        SMS,
    )

    assert [size.parts for size in found] == [8, 6, 2]
    assert "too many, so it gets fewer" in found[1].why
    assert "fewer" not in found[0].why


def test_who_says_a_number_comes_before_who_only_has_use_for_some():
    assert parts_of(claim("a", asked_sms=96), claim("b", curve=curve(16))) == [12, 4]


def test_what_is_left_over_is_told_where_it_makes_more_of_a_size_than_its_knee():
    slow = Curve(sm_counts=(16, 64, 128), iteration_ns=(400, 102, 100))

    (only,) = sizes([claim("a", curve=slow)], 16, 8)

    assert only.parts == 16
    assert only.why == "beyond 64 SMs each SM gains less; 64 more are left over"


def test_without_curves_the_same_jobs_are_sized_otherwise():
    jobs = [("l", LATENCY, 4), ("b", BATCH, 16)]
    sized = parts_of(*(claim(n, job_class=c, curve=curve(k)) for n, c, k in jobs))
    unsized = parts_of(*(claim(n, job_class=c, doubt="off") for n, c, _ in jobs))

    assert (sized, unsized) == ([4, 12], [0, 0])


CLAIMS = st.lists(
    st.builds(
        Claim,
        name=st.just("x"),
        job_class=st.sampled_from(JobClass),
        asked_sms=st.sampled_from([0, 0, 1, 8, 20, 60, 200]),
        curve=st.one_of(st.none(), st.builds(curve, st.integers(1, PARTS))),
        slo_ns=st.sampled_from([0, 100_000, 400_000]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(CLAIMS)
def test_parts_are_never_more_than_there_are_and_latency_never_gives_for_others(claims):
    found = sizes(claims, PARTS, SMS)
    alone = [sizes([one], PARTS, SMS)[0] for one in claims]
    latency = [c for c in claims if c.job_class is LATENCY]

    assert sum(size.parts for size in found) <= PARTS
    if any(c.curve is None and not c.asked_sms for c in claims):
        assert sum(size.parts for size in found) < PARTS
    if len(latency) == 1:
        (place,) = (i for i, c in enumerate(claims) if c.job_class is LATENCY)
        assert found[place].parts >= min(alone[place].parts, PARTS - 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, PARTS), min_size=1, max_size=3))
def test_the_rest_goes_where_trying_all_ways_finds_the_most_throughput(knees):
    """For curves with a single knee, no division does more iterations in total."""
    curves = [curve(knee) for knee in knees]
    found = parts_of(*(claim(str(i), curve=one) for i, one in enumerate(curves)))

    def throughput(parts):
        return sum(1 / one.at(n * SMS) for one, n in zip(curves, parts, strict=True))

    ways = product(range(1, PARTS + 1), repeat=len(curves))
    best = max(throughput(way) for way in ways if sum(way) <= PARTS)
    assert throughput(found) == pytest.approx(best, rel=1e-6)
