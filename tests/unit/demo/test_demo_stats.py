import random

import pytest

from tandem.demo.arrivals import poisson_ns
from tandem.demo.stats import (
    clip,
    covered_ns,
    percentile,
    rate_per_s,
    ratio,
    share_of_idle,
)


def test_a_percentile_is_the_nearest_rank():
    values = [float(v) for v in range(1, 101)]

    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile(values, 0) == 1


def test_a_percentile_of_one_value_is_that_value():
    assert percentile([7.0], 99) == 7.0


def test_a_percentile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 50)


def test_overlapping_intervals_are_covered_once():
    assert covered_ns([(0, 10), (5, 15), (20, 30), (22, 25)]) == 25


def test_the_union_agrees_with_counting_points():
    source = random.Random(3)
    intervals = [(a := source.randrange(200), a + source.randrange(20)) for _ in range(40)]
    points = {p for begin, end in intervals for p in range(begin, end)}

    assert covered_ns(intervals) == len(points)


def test_intervals_are_cut_at_the_window():
    assert clip([(0, 5), (8, 12), (18, 30), (40, 50)], (10, 20)) == [(10, 12), (18, 20)]


def test_the_share_of_idle_is_taken_of_what_the_server_left():
    assert share_of_idle(trainers_ns=30, server_ns=40, window_ns=100) == 0.5
    assert share_of_idle(trainers_ns=30, server_ns=100, window_ns=100) == 0.0


def test_a_rate_counts_from_the_first_begin_to_the_last_end():
    assert rate_per_s([(0, 500_000_000), (500_000_000, 1_000_000_000)]) == 2.0
    assert rate_per_s([]) == 0.0


def test_a_ratio_to_nothing_is_zero():
    assert ratio(3.0, 0.0) == 0.0
    assert ratio(3.0, 2.0) == 1.5


def test_arrivals_repeat_for_the_same_seed():
    first, second = (poisson_ns(seed=1, mean_gap_ns=1000, until_ns=100_000) for _ in range(2))

    assert first == second
    assert first == sorted(first)
    assert first[0] > 0
    assert first[-1] < 100_000


def test_arrivals_have_the_asked_rate():
    times = poisson_ns(seed=5, mean_gap_ns=1_000, until_ns=10_000_000)

    assert 9_500 < len(times) < 10_500


def test_a_gap_of_zero_is_refused():
    with pytest.raises(ValueError, match="must be positive, not 0 ns"):
        poisson_ns(seed=1, mean_gap_ns=0, until_ns=10)
