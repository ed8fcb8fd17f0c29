"""How fast a job is on how many SMs, where more of them stop paying, and how many a limit takes.

A curve is told from the records of one run (csrc/core/dag/analysis/scaling.h). The knee and the
number of SMs that a limit takes are those of gpu-let (Choi et al., USENIX ATC 2022): the partition
that the last worthwhile step leads to, and the smallest that keeps the limit at the rate asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_POINTS = 16  # of a curve; GPUs with as many SMs have a point each, others a tenth of them
_TENTHS = 10
SHARED = "others used its SMs while it was recorded"  # why there is no curve
GAIN = 1.05  # a step that gains less is none
ALIKE = 1.25  # steps that gain as much to this factor: so far whole waves lead an even curve astray


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The length of an iteration by the number of SMs it runs on.

    Points ascend, and more SMs never take longer: what was found otherwise is levelled.

    Raises:
        ValueError: there is no point, or they do not ascend, or one takes no time.
    """

    sm_counts: tuple[int, ...]
    iteration_ns: tuple[int, ...]
    source: str = "predicted"  # "probed": fitted to what was measured on other numbers of SMs
    gamma: float = 0.0  # how little SMs mean to its kernels, 0..1: assumed, or fitted
    recorded_sms: int = 0  # it was recorded on so many
    recorded_ns: int = 0  # and an iteration took so long there
    held_sms: float = 0.0  # of these, by its kernels: the mean over the time of these

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
        """The length of an iteration, nanoseconds.

        Between two points as if a part of it were divided among the SMs and a part were not, which
        is straight over 1 / SMs; below the first as if all were divided; beyond the last as there.

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
        """What of an iteration takes as long on any number of SMs, at most: pauses, few blocks.

        What is left where the part that is divided, as the two fewest tell it, is taken off.
        """
        if len(self.sm_counts) < 2:
            return float(self.iteration_ns[0])
        (few, more), (few_ns, more_ns) = self.sm_counts[:2], self.iteration_ns[:2]
        return max(0.0, few_ns - (few_ns - more_ns) * more / (more - few))

    def knee(self) -> int:
        """Where more SMs stop paying: the end of the step that gains most throughput an SM.

        Steps of less than `GAIN` times as much throughput count for nothing. Of several that gain
        as much, to the factor `ALIKE`, the last counts: work that scales evenly wants all SMs. The
        first point, where no step pays. Steps are those of the upper hull: whole waves make of an
        even curve a staircase, whose single steps say little.
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
        """Points that no line between two others passes above, as throughput over SMs.

        Monotone chain (Andrew, Information Processing Letters 9, 1979).
        """
        hull: list[tuple[int, int]] = []
        for point in zip(self.sm_counts, self.iteration_ns, strict=True):
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
                hull.pop()
            hull.append(point)
        return hull

    def smallest_for(self, slo_ns: int, rate: float = 0.0) -> int | None:
        """The fewest SMs of its points on which it keeps a limit; None: it does not on any.

        An iteration serves a request within `slo_ns`, and is over before the next one begins where
        `rate` of them come a second (0 = not known).
        """
        limit_ns = min(slo_ns, 1e9 / rate) if rate else slo_ns
        for sms, time_ns in zip(self.sm_counts, self.iteration_ns, strict=True):
            if time_ns <= limit_ns:
                return sms
        return None


def _slope(left: tuple[int, int], right: tuple[int, int]) -> float:
    """Throughput that each SM adds between two points of a curve."""
    return (1 / right[1] - 1 / left[1]) / (right[0] - left[0])


def points_of(sm_count: int, recorded_sms: int) -> tuple[int, ...]:
    """The numbers of SMs that a curve of a GPU is told at, that of the record among them."""
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
    """A curve through what was recorded: of what is predicted only the ratios count.

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
