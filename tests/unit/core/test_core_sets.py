"""Where jobs are placed on the groups of a split."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest

from tandemd.core.space.sets import Span, are_apart, fit, place


def test_everybody_gets_groups_side_by_side() -> None:
    assert place({"a": 4, "b": 8}, {}, 16) == {"a": Span(8, 4), "b": Span(0, 8)}


def test_who_says_nothing_shares_what_is_left() -> None:
    found = place({"a": 0, "b": 10, "c": 0}, {}, 16)

    assert found["b"].count == 10
    assert found["a"] == found["c"]
    assert found["a"].count == 6
    assert found["a"].overlap(found["b"]) == 0


def test_alone_and_silent_it_gets_everything() -> None:
    assert place({"a": 0}, {}, 16) == {"a": Span(0, 16)}


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ({"a": 16, "b": 16}, {"a": 8, "b": 8}),
        ({"a": 12, "b": 8}, {"a": 10, "b": 6}),
        ({"a": 16, "b": 0}, {"a": 15, "b": 0}),
        ({"a": 1, "b": 16}, {"a": 1, "b": 15}),
    ],
)
def test_more_than_there_is_is_scaled_down(wanted: dict[str, int], given: dict[str, int]) -> None:
    assert fit(wanted, 16) == given


def test_more_jobs_than_groups_share_the_last_one() -> None:
    wanted = {f"j{i}": 2 for i in range(6)}

    assert list(fit(wanted, 4).values()) == [1, 1, 1, 0, 0, 0]
    found = place(wanted, {}, 4)
    assert found["j3"] == found["j5"]
    assert sum(span.count for span in set(found.values())) == 4
    assert fit({"a": 1, "b": 1}, 1) == {"a": 0, "b": 0}


def test_nobody_moves_when_another_one_shrinks() -> None:
    held = {"a": Span(0, 4), "b": Span(4, 8), "c": Span(12, 4)}

    found = place({"a": 4, "b": 5, "c": 4}, held, 16)

    assert (found["a"], found["c"]) == (held["a"], held["c"])
    assert found["b"] == Span(4, 5)


def test_one_moves_where_that_makes_room() -> None:
    held = {"a": Span(0, 2), "b": Span(6, 4), "c": Span(14, 2)}

    found = place({"a": 2, "b": 4, "c": 2, "d": 8}, held, 16)

    assert sum(found[job] == held[job] for job in held) == 2
    assert found["d"].count == 8


def test_what_is_left_is_in_one_piece() -> None:
    held = {"a": Span(0, 4), "b": Span(8, 4)}

    found = place({"a": 4, "b": 4, "c": 0}, held, 16)

    assert found["c"].count == 8


@pytest.mark.parametrize("groups", [24, 66])
def test_a_decision_is_short_however_jobs_are_spread(groups: int) -> None:
    """One-group jobs at every other place leave hundreds of thousands of ways to make room."""
    held = {f"j{i}": Span(2 * i, 1) for i in range(groups // 2)}
    wanted = {**dict.fromkeys(held, 1), "new": groups // 2}

    found, calls = counted(wanted, held, groups)

    assert calls < 150 * groups
    assert found["new"].count == groups // 2
    assert are_apart(found.values(), groups)


def test_a_decision_is_short_however_many_come_at_once() -> None:
    """Six jobs of two groups, five gaps of three: thousands of orders to try, and none fits."""
    held = {f"j{i}": Span(4 * i + 3, 1) for i in range(4)}
    wanted = dict.fromkeys(held, 1) | {f"new{i}": 2 for i in range(6)}

    found, calls = counted(wanted, held, 19)

    assert calls < 5000
    assert are_apart(found.values(), 19)


def counted(
    wanted: dict[str, int], held: dict[str, Span], groups: int
) -> tuple[dict[str, Span], int]:
    """Return the placement and the number of calls it took: deterministic, unlike time."""
    counts = Counter[str]()
    sys.setprofile(lambda _frame, event, _arg: counts.update((event,)))
    try:
        found = place(wanted, held, groups)
    finally:
        sys.setprofile(None)
    return found, counts["call"]


def test_random_jobs_never_overlap_and_stay_where_nothing_changes() -> None:
    chance = random.Random(8)
    held: dict[str, Span] = {}
    for _ in range(300):
        groups = 16
        wanted = {f"j{i}": chance.choice((0, 0, 1, 2, 4, 9)) for i in range(chance.randint(1, 7))}

        found = place(wanted, held, groups)

        sizes = fit(wanted, groups)
        own = [found[job] for job in wanted if sizes[job]]
        shared = {found[job] for job in wanted if not sizes[job]}
        assert len(shared) <= 1
        assert are_apart([*own, *shared], groups)
        assert all(found[job].count == sizes[job] for job in wanted if sizes[job])
        assert place(wanted, found, groups) == found
        held = found
