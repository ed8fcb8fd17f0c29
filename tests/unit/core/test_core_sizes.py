"""How requests differ in what they need."""

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
    """Of 12, that a request takes, 2 are nothing of its own; one that needs 5 more takes 17."""
    found = sizes_of([10] * 50 + [15] * 50, 12)

    assert (found.each[0], found.p99) == (1, pytest.approx(17 / 12))


def test_less_than_a_tenth_need_at_most_is_no_less():
    assert sizes_of([1, *[10] * 99], 10).each[0] == 1
