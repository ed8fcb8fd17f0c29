"""How much requests differ in what they need."""

from math import exp
from random import Random

import pytest

from tandemd.core.tuner.sizes import ALIKE, ENOUGH, PARTS, sizes_of


def test_parts_are_all_of_them():
    assert sum(PARTS) == pytest.approx(1)
    assert len(ALIKE.each) == len(PARTS)


def test_few_are_alike_whatever_they_need():
    assert sizes_of([1] * (ENOUGH - 2) + [100], 1) is ALIKE
    assert sizes_of([1] * (ENOUGH - 1) + [100], 1) is not ALIKE


def test_what_is_no_request_yet_is_alike():
    assert sizes_of([5] * 100, 0) is ALIKE


@pytest.mark.parametrize("count", [100, 1000])
def test_their_mean_their_squares_and_their_99th_are_those_of_all(count):
    needed = [10] * (count * 90 // 100) + [40] * (count * 10 // 100)

    found = sizes_of(needed, 10)

    assert (found.mean, found.square, found.p99) == pytest.approx((1.3, 2.5, 4))
    assert found.each == (*[1] * 9, 4, 4, 4)


def test_beside_what_a_quick_one_takes_only_what_is_more_counts():
    """Of the 12 that a request takes, 2 are not its own; one that needs 5 more takes 17."""
    found = sizes_of([10] * 50 + [15] * 50, 12)

    assert (found.each[0], found.p99) == (1, pytest.approx(17 / 12))


def test_less_than_a_tenth_need_at_most_is_no_less():
    assert sizes_of([1, *[10] * 99], 10).each[0] == 1


def test_the_fewer_there_are_the_less_the_p99_is_sure():
    found = [sizes_of(range(10_000, 20_000, 10_000 // count), 10_000) for count in (100, 10_000)]

    assert found[0].doubt > 5 * found[1].doubt > 0
    assert ALIKE.doubt == 0


def test_the_p99_is_within_its_doubt_nineteen_times_in_twenty():
    chance, right = Random(0), exp(0.6 * 2.326)

    found = [
        sizes_of([int(1e6 * chance.lognormvariate(0, 0.6)) for _ in range(800)], 1e6)
        for _ in range(200)
    ]

    # Sizes count relative to the tenth percentile, which is exp(-0.6 * 1.282).
    least = exp(-0.6 * 1.282)
    near = [abs(one.p99 - (1 + right - least)) <= one.doubt * one.p99 for one in found]
    assert sum(near) > 0.95 * len(near)
