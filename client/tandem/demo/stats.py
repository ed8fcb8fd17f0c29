"""Percentiles, intervals and the ratios of the report. Pure functions of plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value that at least `percent` % of the values do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        msg = "a percentile needs at least one value"
        raise ValueError(msg)
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(int(rank), 1) - 1]


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of the intervals inside the window."""
    begin, end = window
    clipped = ((max(a, begin), min(b, end)) for a, b in intervals)
    return [(a, b) for a, b in clipped if a < b]


def covered_ns(intervals: Iterable[Interval]) -> int:
    """The length of the union of the intervals."""
    total, reached = 0, None
    for begin, end in sorted(intervals):
        if reached is None or begin > reached:
            reached = begin
        total += max(end - reached, 0)
        reached = max(reached, end)
    return total


def share_of_idle(*, trainers_ns: float, server_ns: float, window_ns: float) -> float:
    """The share of the GPU time left by the server that the trainers got."""
    left_ns = window_ns - server_ns
    return trainers_ns / left_ns if left_ns > 0 else 0.0


def rate_per_s(spans: Sequence[Interval]) -> float:
    """Spans completed per second, from the first one's begin to the last one's end."""
    if not spans:
        return 0.0
    length_ns = spans[-1][1] - spans[0][0]
    return len(spans) * 1e9 / length_ns if length_ns > 0 else 0.0


def ratio(value: float, base: float) -> float:
    """Value over base; 0 when there is no base to compare with."""
    return value / base if base else 0.0
