"""How long things took, counted by fixed bounds: what Prometheus calls a histogram.

The counts only grow: whoever looks now and then knows what came between, and nobody has to keep
what was counted. A quantile is known as finely as the bounds are apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

_MS = 1_000_000

# Requests, and waits for a turn: a segment is shorter than the first bound, and between the last
# two is `max_hold_ns`, unless somebody configured it otherwise.
WAITS_NS = tuple(
    int(ms * _MS) for ms in (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000)
)

# Decisions, of which one with a hundred jobs is to take 50 us; everybody waits for it meanwhile.
DECISIONS_NS = tuple(
    int(us * 1000) for us in (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000, 1e6)
)


@dataclass(frozen=True, slots=True)
class Counted:
    """A histogram as it was at some moment."""

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]  # by bound, which is part of it; then of what was longer than all
    sum_ns: int = 0

    @property
    def count(self) -> int:
        """Of all that was counted."""
        return sum(self.counts)


@dataclass(slots=True)
class Histogram:
    """Belongs to whoever counts; others get what `counted` returns."""

    bounds_ns: tuple[int, ...]
    _counts: list[int] = field(init=False)
    _sum_ns: int = 0

    def __post_init__(self) -> None:
        self._counts = [0] * (len(self.bounds_ns) + 1)

    def add(self, durations_ns: Iterable[int]) -> None:
        """These took so long."""
        for duration_ns in durations_ns:
            self._counts[bisect_left(self.bounds_ns, duration_ns)] += 1
            self._sum_ns += duration_ns

    def counted(self) -> Counted:
        """As it is now."""
        return Counted(self.bounds_ns, tuple(self._counts), self._sum_ns)
