"""Durations counted in buckets with fixed bounds: a Prometheus histogram.

Counts only grow, so that an occasional reader sees everything since its last look and no samples
need to be kept. Quantiles are as precise as the bounds are close.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

_MS = 1_000_000

# For requests and waits for a turn: a segment is shorter than the first bound, and the default
# `max_hold_ns` lies between the last two.
WAITS_NS = tuple(
    int(ms * _MS) for ms in (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000)
)

# For decisions. With a hundred jobs one should take 50 us; everybody waits for it meanwhile.
DECISIONS_NS = tuple(
    int(us * 1000) for us in (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000, 1e6)
)


@dataclass(frozen=True, slots=True)
class Counted:
    """A snapshot of a histogram."""

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]  # up to and including each bound; then those above all
    sum_ns: int = 0

    @property
    def count(self) -> int:
        """Number of all samples."""
        return sum(self.counts)


@dataclass(slots=True)
class Histogram:
    """A histogram owned by the thread that counts; others get what `counted` returns."""

    bounds_ns: tuple[int, ...]
    _counts: list[int] = field(init=False)
    _sum_ns: int = 0

    def __post_init__(self) -> None:
        self._counts = [0] * (len(self.bounds_ns) + 1)

    def add(self, durations_ns: Iterable[int]) -> None:
        """Count these durations."""
        for duration_ns in durations_ns:
            self._counts[bisect_left(self.bounds_ns, duration_ns)] += 1
            self._sum_ns += duration_ns

    def counted(self) -> Counted:
        """Return a snapshot."""
        return Counted(self.bounds_ns, tuple(self._counts), self._sum_ns)
