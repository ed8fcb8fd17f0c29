"""Host memory that is missing for groups to move out, and what must stay on the GPU for want of it.

A decision asks this for every group that may get the turn, with all other groups in need of host
memory. So the sums over all groups are computed once, and each query only searches for the point at
which the host is full: with a hundred groups a query costs hardly more than with three.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from tandemd.core.memory.homes import UNIT
from tandemd.core.memory.swap_places import Place, shared_out


def lacks_bytes(places: list[Place], target_bytes: int) -> int:
    """Return what the host must give so that at most `target_bytes` of a group stay on the GPU."""
    if len(places) == 1:  # nearly always
        return places[0].home.lacks_bytes(target_bytes // UNIT * UNIT)
    parts = shared_out(places, target_bytes)
    return sum(place.home.lacks_bytes(part_bytes) for place, part_bytes in parts)


def least_bytes(places: list[Place], left_bytes: int) -> int:
    """Return how much of a group must stay on the GPU if the host has `left_bytes` to give."""
    resident_bytes = sum(place.resident_bytes for place in places)
    if len(places) == 1:
        least = places[0].home.least_bytes(left_bytes)
        return resident_bytes if least is None else min(resident_bytes, least)
    # Several processes shrink together, each in its own steps, so the lack has no simple formula.
    total_bytes = sum(place.process.usage.swappable_bytes for place in places)
    units = bisect_left(
        range(total_bytes // UNIT + 1),
        -left_bytes,
        key=lambda count: -lacks_bytes(places, count * UNIT),
    )
    return min(resident_bytes, units * UNIT)


@dataclass(frozen=True, slots=True)
class Lack:
    """What the host must give for everything of one group to go that may go."""

    places: list[Place]
    kept_bytes: int  # of the group, never moved out
    full_bytes: int  # for everything else to go
    first_bytes: int  # for anything to go
    here_bytes: int  # what the group has on the GPU beyond `kept_bytes`: what stays if nothing goes

    @classmethod
    def of(cls, places: list[Place], kept_bytes: int) -> Lack | None:
        """Return what lacks for a group; None: the host has all that it needs for it."""
        full_bytes = lacks_bytes(places, kept_bytes)
        if not full_bytes:
            return None
        here_bytes = sum(place.resident_bytes for place in places) - kept_bytes
        first_bytes = full_bytes
        if here_bytes > 0:
            most_units = (kept_bytes + here_bytes - 1) // UNIT
            first_bytes = lacks_bytes(places, most_units * UNIT)
        return cls(places, kept_bytes, full_bytes, first_bytes, max(0, here_bytes))


class Lacks:
    """Groups that move out one after the other for somebody, as far as the host has room."""

    def __init__(self, lacks: Iterable[Lack]) -> None:
        self._all = list(lacks)
        self._upto = list(accumulate(lack.full_bytes for lack in self._all))
        # For all groups from a position on: the least that lets any of them begin to go, and what
        # they have on the GPU together.
        behind = self._all[::-1]
        self._first = [*accumulate((lack.first_bytes for lack in behind), min)][::-1]
        self._here = [*accumulate(lack.here_bytes for lack in behind)][::-1]

    def stuck_bytes(self, left_bytes: int, *, but: int | None = None) -> int:
        """Return what stays on the GPU if the host has `left_bytes`; the one at `but` need not go.

        Takes time logarithmic in the number of groups, unless what one group leaves over lets part
        of another go.
        """
        upto, own_bytes = self._upto, 0
        place = bisect_right(upto, left_bytes)
        if but is not None and place >= but:
            own_bytes = self._all[but].full_bytes
            place = bisect_right(upto, left_bytes + own_bytes, lo=but + 1)
        if place == len(upto):
            return 0
        if place:
            left_bytes -= upto[place - 1] - own_bytes
        stuck_bytes = 0
        while place < len(upto):
            if left_bytes < self._first[place]:
                stuck_bytes += self._here[place]
                if but is not None and place <= but:
                    stuck_bytes -= self._all[but].here_bytes
                break
            if place != but:
                lack = self._all[place]
                stays, taken = _stays(lack, left_bytes)
                stuck_bytes += stays
                left_bytes -= taken
            place += 1
        return stuck_bytes


def _stays(lack: Lack, left_bytes: int) -> tuple[int, int]:
    """Return how much of one group stays, and how much of `left_bytes` the host gives it."""
    if lack.full_bytes <= left_bytes:
        return 0, lack.full_bytes
    if left_bytes < lack.first_bytes:
        return lack.here_bytes, 0
    least = max(lack.kept_bytes, least_bytes(lack.places, left_bytes))
    return least - lack.kept_bytes, lacks_bytes(lack.places, least)
