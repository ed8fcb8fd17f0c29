"""Memory curves: what an iteration holds as its work progresses, and which curves fit together.

Zico (Lim et al., USENIX ATC 2021): jobs whose peaks do not fit together may still run side by side
if one is shifted against the other, so that one's memory falls while the other's rises. Progress is
GPU time of the work that is done, not time on a clock: a job that is held makes none, and it does
not matter how far the host runs ahead of the GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Step = tuple[int, int, int]  # from, up to (exclusive), bytes held in between

_EVER = 2**63  # later than any progress


@dataclass(frozen=True, slots=True)
class Curve:
    """Device memory over one iteration: a step function of progress.

    `starts_ns` ascends from 0 and says where each of `held_bytes` begins; the last one lasts until
    `length_ns`. Before and after an iteration the job holds `rest_bytes`.

    Raises:
        ValueError: it is empty or not ascending, or something in it is negative.
    """

    starts_ns: tuple[int, ...]
    held_bytes: tuple[int, ...]
    length_ns: int

    def __post_init__(self) -> None:
        if not self.starts_ns or len(self.starts_ns) != len(self.held_bytes):
            raise ValueError("a curve has as many beginnings as values, and one at least")
        ascends = all(one < next_one for one, next_one in pairwise(self.starts_ns))
        if self.starts_ns[0] != 0 or not ascends or self.length_ns < self.starts_ns[-1]:
            raise ValueError("the steps of a curve ascend from 0 to its length")
        if min(self.held_bytes) < 0:
            raise ValueError("a curve cannot hold less than nothing")

    @property
    def peak_bytes(self) -> int:
        """The most that it holds."""
        return max(self.held_bytes)

    @property
    def rest_bytes(self) -> int:
        """What the job still holds when the iteration has ended."""
        return self.held_bytes[-1]

    @property
    def low_ns(self) -> int:
        """The first place where it holds least."""
        return self.starts_ns[self._lowest]

    def from_low(self) -> Curve:
        """Return the curve of the loop: from where it holds least to the same place again."""
        low, low_ns, lasting = self._lowest, self.low_ns, self._lasting
        starts = [start - low_ns for start in self.starts_ns[low:lasting]]
        starts += [self.length_ns - low_ns + start for start in self.starts_ns[:low]]
        held = [*self.held_bytes[low:lasting], *self.held_bytes[:low]]
        if self.length_ns:
            starts, held = [*starts, self.length_ns], [*held, held[0]]
        return Curve(tuple(starts), tuple(held), self.length_ns)

    @property
    def _lowest(self) -> int:
        lasting = self.held_bytes[: self._lasting]
        return lasting.index(min(lasting))

    @property
    def _lasting(self) -> int:
        """How many steps have a length: the last one may only say what is held at the end."""
        is_end = len(self.starts_ns) > 1 and self.starts_ns[-1] == self.length_ns
        return len(self.starts_ns) - is_end

    def most_from(self, progress_ns: int) -> int:
        """Return the most that it holds from this progress on, inclusive."""
        first = max(0, bisect_right(self.starts_ns, progress_ns) - 1)
        return max(self.held_bytes[first:])

    def ahead(self, by_ns: int) -> Curve:
        """Return what may be held while the host is up to `by_ns` of work ahead of the GPU.

        Memory is taken when the host asks for it, so every rise comes that much earlier.
        """
        starts: list[int] = []
        held: list[int] = []
        corners = sorted({0, *self.starts_ns, *(s - by_ns for s in self.starts_ns if s > by_ns)})
        for start_ns in corners:
            first = bisect_right(self.starts_ns, start_ns) - 1
            last = bisect_right(self.starts_ns, start_ns + by_ns)
            most = max(self.held_bytes[first:last])
            if not held or held[-1] != most:
                starts.append(start_ns)
                held.append(most)
        return Curve(tuple(starts), tuple(held), self.length_ns)

    def steps(self, since_ns: int = 0) -> Iterator[Step]:
        """Yield steps from `since_ns` on, which counts as 0; the last, at rest, never ends."""
        bounds = (*self.starts_ns, self.length_ns)
        for (start_ns, end_ns), size_bytes in zip(pairwise(bounds), self.held_bytes, strict=True):
            if end_ns > max(since_ns, start_ns):
                yield max(0, start_ns - since_ns), end_ns - since_ns, size_bytes
        yield max(0, self.length_ns - since_ns), _EVER, self.rest_bytes


def flat(size_bytes: int) -> Curve:
    """Return the curve of a job that always holds this much."""
    return Curve((0,), (size_bytes,), 0)


def smallest_shift(
    running: Sequence[tuple[Curve, int]],
    curve: Curve,
    budget_bytes: int,
    *,
    progress_ns: int = 0,
    held_bytes: int | None = None,
) -> int | None:
    """Return the work that running jobs have to do before an iteration with `curve` begins.

    Args:
        running: the curve of each, and its progress in it.
        curve: of the job that wants to begin.
        budget_bytes: what all of them together may hold.
        progress_ns: where in its curve the job stands, if not at the beginning.
        held_bytes: what it holds while it stands there; None: what its curve says.

    Returns:
        The smallest shift, in nanoseconds, with which the sum stays within the budget if all
        proceed at the same pace; 0: now. None: there is none, and one has to end before the
        other begins.
    """
    beside = _sum([list(held.steps(progress_ns)) for held, progress_ns in running])
    before_bytes = curve.rest_bytes if held_bytes is None else held_bytes
    own = [(-_EVER, 0, before_bytes), *curve.steps(progress_ns)]
    shift_ns = 0
    while (cleared_ns := _cleared(beside, own, shift_ns, budget_bytes)) is not None:
        if cleared_ns >= _EVER - curve.length_ns:
            return None
        shift_ns = cleared_ns
    return shift_ns


def _cleared(beside: list[Step], own: list[Step], shift_ns: int, budget_bytes: int) -> int | None:
    """Return the least shift past the first two steps that exceed the budget; None: none do.

    One of two such steps has to be over when the other begins: no smaller shift will do.
    """
    place = 0
    for start_ns, end_ns, size_bytes in beside:
        while own[place][1] + shift_ns <= start_ns:
            place += 1
        for own_start_ns, _, own_bytes in own[place:]:
            if own_start_ns + shift_ns >= end_ns:
                break
            if size_bytes + own_bytes > budget_bytes:
                return end_ns - own_start_ns
    return None


def _sum(many: list[list[Step]]) -> list[Step]:
    """Return the sum of step functions that all begin at 0 and never end."""
    corners = sorted({start for steps in many for start, _, _ in steps} | {0})
    places = [0] * len(many)
    total: list[Step] = []
    for start_ns, end_ns in pairwise((*corners, _EVER)):
        size_bytes = 0
        for number, steps in enumerate(many):
            while steps[places[number]][1] <= start_ns:
                places[number] += 1
            size_bytes += steps[places[number]][2]
        total.append((start_ns, end_ns, size_bytes))
    return total
