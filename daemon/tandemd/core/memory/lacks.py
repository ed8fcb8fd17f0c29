"""What the host lacks for memory to go there, and what has to stay on the GPU for that.

A decision asks this of every group that may have the turn, with all the others in the host's way.
So the sums over all are made once, and a group looks for the place in them at which the host is
full: with a hundred groups that costs hardly more for each than with three.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from tandemd.core.memory.homes import UNIT
from tandemd.core.memory.swap_places import Place, shared_out


def lacks_bytes(places: list[Place], target_bytes: int) -> int:
    """What the host has to give for no more than that of a group to be on the GPU."""
    if len(places) == 1:  # nearly always
        return places[0].home.lacks_bytes(target_bytes // UNIT * UNIT)
    parts = shared_out(places, target_bytes)
    return sum(place.home.lacks_bytes(part_bytes) for place, part_bytes in parts)


def least_bytes(places: list[Place], left_bytes: int) -> int:
    """Of a group, what has to stay on the GPU where the host has so much left to give."""
    resident_bytes = sum(place.resident_bytes for place in places)
    if len(places) == 1:
        least = places[0].home.least_bytes(left_bytes)
        return resident_bytes if least is None else min(resident_bytes, least)
    # Several shrink together, each in steps of its own: what they lack is no simple function.
    total_bytes = sum(place.process.usage.swappable_bytes for place in places)
    units = bisect_left(
        range(total_bytes // UNIT + 1),
        -left_bytes,
        key=lambda count: -lacks_bytes(places, count * UNIT),
    )
    return min(resident_bytes, units * UNIT)


@dataclass(frozen=True, slots=True)
class Lack:
    """Of one group: what the host has to give for all of it to go that may."""

    places: list[Place]
    kept_bytes: int  # of the group, never away
    full_bytes: int  # for all but that to go
    first_bytes: int  # for anything to go
    here_bytes: int  # of the group on the GPU, but for what is kept: what stays if nothing goes

    @classmethod
    def of(cls, places: list[Place], kept_bytes: int) -> Lack | None:
        """None: the host has all that it needs for the group."""
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
    """Groups whose memory goes for somebody, one after the other, as far as the host has room."""

    def __init__(self, lacks: Iterable[Lack]) -> None:
        self._all = list(lacks)
        self._upto = list(accumulate(lack.full_bytes for lack in self._all))
        # Of those from a place on: what lets anything of any of them go, and what they have.
        behind = self._all[::-1]
        self._first = [*accumulate((lack.first_bytes for lack in behind), min)][::-1]
        self._here = [*accumulate(lack.here_bytes for lack in behind)][::-1]

    def stuck_bytes(self, left_bytes: int, *, but: int | None = None) -> int:
        """What stays of them where the host has so much left; the one at place `but` needs not go.

        Takes the logarithm of how many there are, unless what is left over by one lets some of
        another go.
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
    """Of one group, what stays, and what the host gives it of what is left."""
    if lack.full_bytes <= left_bytes:
        return 0, lack.full_bytes
    if left_bytes < lack.first_bytes:
        return lack.here_bytes, 0
    least = max(lack.kept_bytes, least_bytes(lack.places, left_bytes))
    return least - lack.kept_bytes, lacks_bytes(lack.places, least)
