"""Device memory that grows from iteration to iteration, measured where iterations end.

The slope is the Theil-Sen estimate (Sen, JASA 63, 1968): the median of the slopes of all pairs of
points, which a few jumps of a caching allocator do not change. Growth that slows down comes from a
warm-up or changing shapes and is no leak: the second half of the points must grow about as much as
the first, in several steps, and hardly ever shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.history import End, History
from tandemd.core.watchdog.words import span
from tandemd.core.words import size_of

POINTS = 24  # newest ends to look at
STEPS = 3  # minimum number of growing steps in each half
SHRINKS = 0.1  # of the growth may be given back in between
KEEPS_ON = 0.7  # least growth of the second half relative to the first
KEEPS_ON_STANDING = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Growth of at least `growth_bytes` over the newest points."""

    growth_bytes: int = 64 << 20

    @property
    def span_ns(self) -> int:
        """0, because the ends of iterations suffice."""
        return 0

    def find(self, history: History, *, standing: bool) -> Finding | None:
        """Look at the newest ends of iterations."""
        points = history.ends.points[-POINTS:]
        if len(points) < POINTS or points[-1].device_bytes - points[0].device_bytes < (
            self.growth_bytes
        ):
            return None
        middle = (points[0].device_bytes + points[-1].device_bytes) / 2
        given_back = history.last.device_bytes < middle
        if given_back or not _keeps_growing(points, KEEPS_ON_STANDING if standing else KEEPS_ON):
            return None
        return _finding(history, points)


def _keeps_growing(points: Sequence[End], keeps_on: float) -> bool:
    steps = [after.device_bytes - before.device_bytes for before, after in pairwise(points)]
    growth = sum(steps)
    shrinks = -sum(step for step in steps if step < 0)
    halves = steps[: len(steps) // 2], steps[len(steps) // 2 :]
    grown = [sum(half) for half in halves]
    stepwise = all(sum(step > 0 for step in half) >= STEPS for half in halves)
    return stepwise and shrinks <= SHRINKS * growth and grown[1] >= keeps_on * grown[0]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the Theil-Sen slope, the median over all pairs; 0 for fewer than two abscissae."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 != x1]
    return median(slopes) if slopes else 0.0


def _finding(history: History, points: Sequence[End]) -> Finding:
    first, last = points[0], points[-1]
    per_iteration = slope([(end.iteration, end.device_bytes) for end in points])
    per_second = slope([(end.now_ns / 1e9, end.device_bytes) for end in points])
    room_bytes = history.last.room_bytes
    facts = [("bytes_per_iteration", per_iteration), ("bytes_per_second", per_second)]
    end = ""
    if room_bytes is not None and per_iteration > 0 and per_second > 0:
        facts += [("room_bytes", room_bytes), ("full_in_s", room_bytes / per_second)]
        end = (
            f"; what is left of its limit or of the gpu, {size_of(room_bytes)}, lasts for about "
            f"{room_bytes / per_iteration:.0f} iterations, {span(room_bytes / per_second * 1e9)}"
        )
    return Finding(
        rule="leak",
        since_ns=first.now_ns,
        what=f"its device memory grows by {size_of(per_iteration)} an iteration, from "
        f"{size_of(first.device_bytes)} to {size_of(last.device_bytes)} in "
        f"{last.iteration - first.iteration} iterations{end}",
        why="it will run out of memory, and until then takes it from the others",
        advice="look for tensors that outlive their iteration, such as a list of losses that still "
        "hold their graph; torch.cuda.memory_snapshot() shows them",
        facts=tuple(facts),
    )
