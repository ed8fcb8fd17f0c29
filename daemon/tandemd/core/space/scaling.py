"""How fast a job is on how many SMs, where more stop paying, and how many a limit requires.

A curve is derived from the records of one run (csrc/core/dag/analysis/scaling.h). The knee and the
number of SMs that a limit requires are those of gpu-let (Choi et al., USENIX ATC 2022): the
partition that the last worthwhile step leads to, and the smallest that keeps the limit at the rate
asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_POINTS = 16  # with at most this many SMs a curve has a point for each; else for each tenth
_TENTHS = 10
SHARED = "others used its SMs while it was recorded"  # why there is no curve
GAIN = 1.05  # a step that gains less does not count
ALIKE = 1.25  # gains within this factor count as equal: whole waves distort an even curve that much


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The length of an iteration as a function of the number of SMs it runs on.

    Points ascend, and more SMs never take longer: where the input says otherwise it is levelled.

    Raises:
        ValueError: there is no point, or they do not ascend, or one takes no time.
    """

    sm_counts: tuple[int, ...]
    iteration_ns: tuple[int, ...]
    source: str = "predicted"  # "probed": fitted to what was measured on other numbers of SMs
    gamma: float = 0.0  # how little SMs matter to its kernels, 0..1: assumed, or fitted
    recorded_sms: int = 0  # SMs on which it was recorded
    recorded_ns: int = 0  # what an iteration took there
    held_sms: float = 0.0  # of these SMs, held by its kernels: the mean over the kernels' time

    def __post_init__(self) -> None:
        counts, times = self.sm_counts, self.iteration_ns
        if not counts or len(counts) != len(times):
            raise ValueError("a curve has as many times as numbers of SMs, and one at least")
        if counts[0] < 1 or any(a >= b for a, b in pairwise(counts)) or min(times) < 1:
            raise ValueError("a curve's numbers of SMs ascend from 1, and all take time")
        levelled, least = [], times[0]
        for time in times:
            least = min(least, time)
            levelled.append(least)
        object.__setattr__(self, "iteration_ns", tuple(levelled))

    def at(self, sms: int) -> float:
        """Return the length of an iteration in nanoseconds.

        Between two points it is linear in 1 / SMs, as if a part of it were divided among the SMs
        and a part were not. Below the first point it is as if all were divided; beyond the last it
        is constant.

        Raises:
            ValueError: `sms` is less than 1.
        """
        if sms < 1:
            raise ValueError(f"{sms} SMs, which is less than 1")
        place = bisect_left(self.sm_counts, sms)
        if place == len(self.sm_counts):
            return float(self.iteration_ns[-1])
        right, right_ns = self.sm_counts[place], self.iteration_ns[place]
        if place == 0:
            return right_ns * right / sms
        left, left_ns = self.sm_counts[place - 1], self.iteration_ns[place - 1]
        part = (1 / left - 1 / sms) / (1 / left - 1 / right)
        return left_ns + (right_ns - left_ns) * part

    @property
    def undivided_ns(self) -> float:
        """The most that takes equally long on any number of SMs: pauses, and kernels of few blocks.

        It is what remains after subtracting the divided part, as derived from the two lowest
        points.
        """
        if len(self.sm_counts) < 2:
            return float(self.iteration_ns[0])
        (few, more), (few_ns, more_ns) = self.sm_counts[:2], self.iteration_ns[:2]
        return max(0.0, few_ns - (few_ns - more_ns) * more / (more - few))

    def knee(self) -> int:
        """Return where more SMs stop paying: the end of the step with most throughput per SM.

        Steps that gain less than a factor `GAIN` of throughput are ignored. Of several with equal
        gains, up to a factor `ALIKE`, the last counts, because work that scales evenly wants all
        SMs. If no step pays, the knee is the first point. Steps are those of the upper hull: whole
        waves turn an even curve into a staircase, whose single steps say little.
        """
        knee, most = self.sm_counts[0], 0.0
        for (left, left_ns), (right, right_ns) in pairwise(self._hull()):
            if left_ns < GAIN * right_ns:
                continue
            marginal = _slope((left, left_ns), (right, right_ns))
            if marginal * ALIKE >= most:
                knee, most = right, max(most, marginal)
        return knee

    def _hull(self) -> list[tuple[int, int]]:
        """Return the upper hull of throughput over SMs.

        Monotone chain (Andrew, Information Processing Letters 9, 1979).
        """
        hull: list[tuple[int, int]] = []
        for point in zip(self.sm_counts, self.iteration_ns, strict=True):
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
                hull.pop()
            hull.append(point)
        return hull

    def smallest_for(self, slo_ns: int, rate: float = 0.0) -> int | None:
        """Return the fewest SMs among its points that keep a limit; None: none of them do.

        An iteration must serve a request within `slo_ns`, and end before the next one begins if
        `rate` of them come a second (0 = not known).
        """
        limit_ns = min(slo_ns, 1e9 / rate) if rate else slo_ns
        for sms, time_ns in zip(self.sm_counts, self.iteration_ns, strict=True):
            if time_ns <= limit_ns:
                return sms
        return None


def _slope(left: tuple[int, int], right: tuple[int, int]) -> float:
    """Return the throughput that each SM adds between two points of a curve."""
    return (1 / right[1] - 1 / left[1]) / (right[0] - left[0])


def points_of(sm_count: int, recorded_sms: int) -> tuple[int, ...]:
    """Return the numbers of SMs at which a GPU's curve has points, including that of the record."""
    if sm_count <= MOST_POINTS:
        found = set(range(1, sm_count + 1))
    else:
        found = {max(1, round(sm_count * tenth / _TENTHS)) for tenth in range(1, _TENTHS + 1)}
    return tuple(sorted(found | {recorded_sms}))


def curve_of(
    sm_counts: Sequence[int],
    lengths_ns: Sequence[int],
    *,
    recorded_sms: int,
    recorded_ns: int,
    gamma: float,
    source: str,
) -> Curve:
    """Return a curve through what was recorded; of predictions only the ratios count.

    Raises:
        ValueError: `recorded_sms` is not among `sm_counts`, or something takes no time.
    """
    own_ns = lengths_ns[sm_counts.index(recorded_sms)]
    if own_ns < 1:
        raise ValueError("what is predicted takes no time")
    times_ns = (max(1, round(recorded_ns * length_ns / own_ns)) for length_ns in lengths_ns)
    return Curve(
        sm_counts=tuple(sm_counts),
        iteration_ns=tuple(times_ns),
        source=source,
        gamma=gamma,
        recorded_sms=recorded_sms,
        recorded_ns=recorded_ns,
    )
