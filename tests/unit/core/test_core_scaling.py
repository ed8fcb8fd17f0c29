"""Scaling curves: between their points, at their knees, and for a given limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from talk import NORMAL, Talk

from tandemd.core.explain.scaling import scaling_lines
from tandemd.core.model import Options
from tandemd.core.space.scaling import Curve, curve_of, points_of

EVEN = Curve(sm_counts=(10, 20, 40, 80), iteration_ns=(800, 400, 200, 100))
BENT = Curve(sm_counts=(10, 20, 40, 80), iteration_ns=(800, 400, 390, 380))
FLAT = Curve(sm_counts=(10, 80), iteration_ns=(100, 100))


def test_between_two_points_a_part_is_divided_and_a_part_is_not():
    half = Curve(sm_counts=(1, 4), iteration_ns=(200, 125))  # 100 + 100 / SMs

    assert half.at(2) == pytest.approx(150)
    assert half.at(4) == 125
    assert half.at(9) == 125
    assert EVEN.at(5) == 1600


@pytest.mark.parametrize("sms", [0, -1])
def test_no_sms_is_no_number_of_sms(sms):
    with pytest.raises(ValueError, match="less than 1"):
        EVEN.at(sms)


@pytest.mark.parametrize(
    ("curve", "told"),
    [
        (EVEN, "an iteration takes 0.1 ms on 80 SMs, all of which it has use for (predicted"),
        (BENT, "an iteration takes 0.38 ms on 80 SMs and 0.4 ms on 20, beyond which each SM gains"),
        (FLAT, "an iteration takes 0.1 ms on 80 SMs, and as long on 10 (predicted"),
    ],
)
def test_explain_tells_where_a_curve_bends(curve, told):
    talk = Talk(Options())
    talk.attach(1, NORMAL)
    in_us = tuple(1000 * duration_ns for duration_ns in curve.iteration_ns)
    scaling = Curve(sm_counts=curve.sm_counts, iteration_ns=in_us)
    talk.core.jobs[1].processes[1].scaling = scaling

    assert scaling_lines(talk.core, talk.core.jobs[1])[0].startswith(told)


def test_more_sms_never_take_longer():
    assert Curve(sm_counts=(1, 2, 3), iteration_ns=(9, 5, 7)).iteration_ns == (9, 5, 5)


@pytest.mark.parametrize(
    ("counts", "times"),
    [((), ()), ((1,), (1, 2)), ((2, 1), (1, 1)), ((0, 1), (1, 1)), ((1, 2), (1, 0))],
)
def test_what_is_no_curve_is_refused(counts, times):
    with pytest.raises(ValueError, match="curve"):
        Curve(sm_counts=counts, iteration_ns=times)


def test_the_knee_is_where_the_last_step_that_gains_as_much_as_any_leads():
    assert EVEN.knee() == 80
    assert BENT.knee() == 20
    assert Curve(sm_counts=(10, 20), iteration_ns=(100, 98)).knee() == 10
    assert Curve(sm_counts=(7,), iteration_ns=(100,)).knee() == 7


def test_a_step_that_gains_most_counts_though_one_before_gains_little():
    for little_ns in (390, 375):  # 375 is a step of its own, too
        times = (400, little_ns, 200, 199)
        assert Curve(sm_counts=(10, 20, 30, 40), iteration_ns=times).knee() == 30


@given(blocks=st.integers(20 * 132, 10**6))
def test_work_that_scales_evenly_wants_nearly_all_sms_though_it_runs_in_whole_waves(blocks):
    counts = points_of(132, 132)
    waves = tuple(1000 * -(-blocks // sms) for sms in counts)

    assert Curve(sm_counts=counts, iteration_ns=waves).knee() >= 106


def test_a_part_that_does_not_scale_brings_the_knee_down():
    counts = points_of(132, 132)
    knees = [
        Curve(
            sm_counts=counts, iteration_ns=tuple(int(1e6 * (a + (1 - a) * 132 / n)) for n in counts)
        ).knee()
        for a in (0, 0.2, 0.3, 0.5, 0.8)
    ]

    assert knees == sorted(knees, reverse=True)
    assert (knees[0], knees[-1]) == (132, 26)


def test_the_fewest_sms_that_keep_a_limit():
    assert EVEN.smallest_for(400) == 20
    assert EVEN.smallest_for(399) == 40
    assert EVEN.smallest_for(99) is None


def test_a_limit_is_kept_at_the_rate_that_is_asked_for():
    assert EVEN.smallest_for(800, rate=1e9 / 250) == 40  # one request every 250 ns
    assert EVEN.smallest_for(800, rate=1e9 / 50) is None


def test_what_takes_as_long_on_any_number_of_sms():
    paced = Curve(sm_counts=(10, 20, 40), iteration_ns=(860, 460, 260))

    assert EVEN.undivided_ns == 0
    assert paced.undivided_ns == pytest.approx(60)
    assert Curve(sm_counts=(10, 20), iteration_ns=(500, 500)).undivided_ns == 500
    assert Curve(sm_counts=(10,), iteration_ns=(500,)).undivided_ns == 500
    assert Curve(sm_counts=(10, 20), iteration_ns=(500, 200)).undivided_ns == 0


def test_points_are_all_of_few_sms_and_tenths_of_many():
    assert points_of(4, 4) == (1, 2, 3, 4)
    assert points_of(132, 66) == (13, 26, 40, 53, 66, 79, 92, 106, 119, 132)
    assert 65 in points_of(132, 65)


def test_of_what_is_predicted_only_ratios_count():
    curve = curve_of(
        (1, 2), (90, 50), recorded_sms=2, recorded_ns=100, gamma=0.0, source="predicted"
    )

    assert curve.iteration_ns == (180, 100)
    with pytest.raises(ValueError, match="no time"):
        curve_of((1, 2), (9, 0), recorded_sms=2, recorded_ns=1, gamma=0.0, source="predicted")
