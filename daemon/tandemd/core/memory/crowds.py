"""An island on which memory follows the turn: who can have there what it needs, and who cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tandemd.core.memory.lacks import Lack, Lacks
from tandemd.core.memory.placement import Claim
from tandemd.core.model import Group, GroupKey


@dataclass(frozen=True, slots=True)
class _Line:
    """Those who need the host's room for somebody."""

    places: dict[GroupKey, int]
    lacks: Lacks

    @classmethod
    def of(cls, lacking: Mapping[GroupKey, Lack]) -> _Line:
        places = {key: place for place, key in enumerate(lacking)}
        return cls(places, Lacks(lacking.values()))


@dataclass(slots=True, kw_only=True)
class Crowd:
    """An island whose groups have and ask for more than it has. Of one review; never changed."""

    room_bytes: int  # for everything that can be moved
    claims: dict[GroupKey, Claim]
    first: set[GroupKey]  # those that take no turns, and go before
    too_much: set[GroupKey]  # ask for what can never be, not counted
    # For whose memory the host has to give some; and what it has for that, by who needs the room.
    lacking: dict[GroupKey, Lack]
    host_bytes: dict[GroupKey, int]
    _kept_bytes: int = field(init=False)
    _first_bytes: int = field(init=False)  # more than is kept, for those that go before
    _all: _Line = field(init=False)
    _yielding: _Line = field(init=False)

    def __post_init__(self) -> None:
        """Make the sums over all, once for everybody who asks."""
        self._kept_bytes = sum(claim.kept_bytes for claim in self.claims.values())
        claims = [self.claims[key] for key in self.first if key in self.claims]
        self._first_bytes = sum(claim.needed_bytes - claim.kept_bytes for claim in claims)
        self._all = _Line.of(self.lacking)
        yielding = {key: lack for key, lack in self.lacking.items() if key not in self.first}
        self._yielding = _Line.of(yielding)

    def room_for(self, group: Group) -> int:
        """What is there for the group if everybody goes who has to go for it, but for minima."""
        claim = self.claims.get(group.key)
        room_bytes = self.room_bytes - self._kept_bytes + (claim.kept_bytes if claim else 0)
        return room_bytes if group.key in self.first else room_bytes - self._first_bytes

    def room_now_for(self, group: Group) -> int:
        """The same, as long as the host has no more room than now."""
        line = self._all if group.key in self.first else self._yielding
        left_bytes = self.host_bytes.get(group.key, 0)
        but = line.places.get(group.key)
        return self.room_for(group) - line.lacks.stuck_bytes(left_bytes, but=but)

    def in_the_way(self, waiting: Collection[Group]) -> list[GroupKey]:
        """Those for whom somebody of these waits: the host has no room for their memory."""
        before = {group.key for group in waiting if group.key in self.first}
        others = {group.key for group in waiting} - before
        return [
            key
            for key in self.lacking
            if _has_other(before, key) or (key not in self.first and _has_other(others, key))
        ]

    def waits_for_the_host(self, group: Group) -> bool:
        """It could have what it needs if the host had room for others' memory."""
        claim = self.claims.get(group.key)
        is_over = claim is not None and claim.needed_bytes > self.room_now_for(group)
        return is_over and not self.cannot_hold(group)

    def cannot_hold(self, group: Group) -> bool:
        """What the group has and asks for is too much, even if all that can be moved goes."""
        claim = self.claims.get(group.key)
        is_over = claim is not None and claim.needed_bytes > self.room_for(group)
        return is_over or group.key in self.too_much


def _has_other(keys: set[GroupKey], key: GroupKey) -> bool:
    return len(keys) > (key in keys)
