"""An island on which memory follows the turn: which groups can have what they need there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tandemd.core.memory.lacks import Lack, Lacks
from tandemd.core.memory.placement import Claim
from tandemd.core.model import Group, GroupKey


@dataclass(frozen=True, slots=True)
class _Line:
    """Groups that need host memory for somebody else's sake."""

    places: dict[GroupKey, int]
    lacks: Lacks

    @classmethod
    def of(cls, lacking: Mapping[GroupKey, Lack]) -> _Line:
        places = {key: place for place, key in enumerate(lacking)}
        return cls(places, Lacks(lacking.values()))


@dataclass(slots=True, kw_only=True)
class Crowd:
    """An island whose groups have and request more than it has. For one review; never changed."""

    room_bytes: int  # for everything that can be moved
    claims: dict[GroupKey, Claim]
    first: set[GroupKey]  # groups that take no turns, and so come first
    too_much: set[GroupKey]  # groups that request what they can never have; not counted
    # What the host must give for a group's memory to move out, if it must give anything, by that
    # group; and what it can give when a group needs the room, by the group that needs it.
    lacking: dict[GroupKey, Lack]
    host_bytes: dict[GroupKey, int]
    _kept_bytes: int = field(init=False)
    _first_bytes: int = field(init=False)  # beyond what is kept, for `first`
    _all: _Line = field(init=False)
    _yielding: _Line = field(init=False)

    def __post_init__(self) -> None:
        """Compute the sums over all groups once, for all queries."""
        self._kept_bytes = sum(claim.kept_bytes for claim in self.claims.values())
        claims = [self.claims[key] for key in self.first if key in self.claims]
        self._first_bytes = sum(claim.needed_bytes - claim.kept_bytes for claim in claims)
        self._all = _Line.of(self.lacking)
        yielding = {key: lack for key, lack in self.lacking.items() if key not in self.first}
        self._yielding = _Line.of(yielding)

    def room_for(self, group: Group) -> int:
        """Return the group's room if everything that must make room for it goes, except minima."""
        claim = self.claims.get(group.key)
        room_bytes = self.room_bytes - self._kept_bytes + (claim.kept_bytes if claim else 0)
        return room_bytes if group.key in self.first else room_bytes - self._first_bytes

    def room_now_for(self, group: Group) -> int:
        """Like `room_for`, but as long as the host has no more room than now."""
        line = self._all if group.key in self.first else self._yielding
        left_bytes = self.host_bytes.get(group.key, 0)
        but = line.places.get(group.key)
        return self.room_for(group) - line.lacks.stuck_bytes(left_bytes, but=but)

    def in_the_way(self, waiting: Collection[Group]) -> list[GroupKey]:
        """Return the groups whose memory somebody waits for and the host has no room for."""
        before = {group.key for group in waiting if group.key in self.first}
        others = {group.key for group in waiting} - before
        return [
            key
            for key in self.lacking
            if _has_other(before, key) or (key not in self.first and _has_other(others, key))
        ]

    def waits_for_the_host(self, group: Group) -> bool:
        """Tell whether it could have what it needs if the host had room for others' memory."""
        claim = self.claims.get(group.key)
        is_over = claim is not None and claim.needed_bytes > self.room_now_for(group)
        return is_over and not self.cannot_hold(group)

    def cannot_hold(self, group: Group) -> bool:
        """Tell whether its memory and requests are too much even if all that can be moved goes."""
        claim = self.claims.get(group.key)
        is_over = claim is not None and claim.needed_bytes > self.room_for(group)
        return is_over or group.key in self.too_much


def _has_other(keys: set[GroupKey], key: GroupKey) -> bool:
    return len(keys) > (key in keys)
