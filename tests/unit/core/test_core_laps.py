"""Where an iteration ends that nobody marks."""

import pytest

from tandemd.core.curves.curves import Curve
from tandemd.core.curves.laps import Laps, progress_in

LOW_AT_3 = Curve((0, 2, 3, 5), (50, 40, 10, 60), 8)
LOW_AT_0 = Curve((0, 4), (10, 60), 8)


def ends(laps, looks, curve):
    """Tell after each look (ends found, progress since) whether one more has ended."""
    return [laps.has_ended_one(found, progress_ns, curve) for found, progress_ns in looks]


def test_without_a_curve_it_is_where_the_end_is_found():
    looks = [(0, 5), (1, 1), (1, 7), (3, 0)]

    assert ends(Laps(), looks, None) == [False, True, False, True]


def test_with_one_it_is_where_least_is_held_once_each_time_round():
    laps = Laps()
    laps.has_ended_one(1, 0, LOW_AT_3)

    looks = [(1, 2), (1, 3), (1, 7), (2, 1), (2, 4), (2, 5)]
    assert ends(laps, looks, LOW_AT_3) == [False, True, False, False, True, False]


@pytest.mark.parametrize(
    ("looks", "ended"),
    [
        ([(1, 2), (2, 1), (2, 3)], [False, True, True]),  # passed between two looks
        ([(1, 2), (2, 4), (2, 5)], [False, True, False]),  # and passed once more
        ([(1, 4), (2, 4), (2, 5)], [True, True, False]),
    ],
)
def test_none_is_missed_between_two_looks(looks, ended):
    laps = Laps()
    laps.has_ended_one(1, 0, LOW_AT_3)

    assert ends(laps, looks, LOW_AT_3) == ended


def test_at_the_beginning_it_is_where_the_end_is_found():
    laps = Laps()
    laps.has_ended_one(1, 0, LOW_AT_0)

    assert ends(laps, [(1, 3), (2, 0), (2, 5)], LOW_AT_0) == [False, True, False]


def test_a_new_curve_ends_nothing_that_lies_behind_it():
    laps = Laps()

    assert ends(laps, [(0, 5), (1, 1)], None) == [False, True]
    assert ends(laps, [(1, 4), (1, 5), (2, 3)], LOW_AT_3) == [False, False, True]


@pytest.mark.parametrize(
    ("progress_ns", "in_lap_ns", "held"),
    [(3, 0, 10), (4, 1, 10), (5, 2, 60), (7, 4, 60), (0, 5, 50), (2, 7, 40), (11, 8, 10)],
)
def test_the_curve_from_there_holds_the_same_as_before(progress_ns, in_lap_ns, held):
    lap = LOW_AT_3.from_low()

    assert progress_in(LOW_AT_3, progress_ns) == in_lap_ns
    place = max(n for n, start_ns in enumerate(lap.starts_ns) if start_ns <= in_lap_ns)
    assert (lap.held_bytes[place], lap.length_ns, lap.rest_bytes) == (held, 8, 10)


def test_an_end_that_does_not_last_is_no_place_to_stop_at():
    ends_lower = Curve((0, 4, 8), (30, 60, 5), 8)

    assert (ends_lower.low_ns, ends_lower.from_low().held_bytes) == (0, (30, 60, 30))
