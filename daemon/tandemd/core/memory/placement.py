"""Whose memory is on a GPU that has not room for everybody's: a plan, pure and without a past.

Only bytes that do not fit beside whoever runs have to move when the turn passes, so a plan takes
from others no more than the group with the turn needs, first from the one whose own turn is
furthest away (Belady's rule at the level of turns), and fills what is left with memory of the
group that is next: that can move while others compute (Wavelet, Wang et al., EuroSys 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """How soon a group needs its memory."""

    ON_TURN = 0  # now: all of it
    NEXT = 1
    LATER = 2
    AWAY = 3  # not before a person or a call of its own says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one group has that can be moved. Bytes."""

    rank: Rank
    total_bytes: int
    resident_bytes: int
    pending_bytes: int = 0  # more that it asks for
    can_go: bool = True  # nothing of it is on the GPU
    kept_bytes: int = 0  # of the total, never away: it was promised them
    stuck_bytes: int = 0  # of what is resident, what the host has no room for

    @property
    def least_bytes(self) -> int:
        """What stays, whoever needs the room."""
        return max(self.kept_bytes, self.stuck_bytes)

    @property
    def needed_bytes(self) -> int:
        """What has to be there for it to run."""
        return self.total_bytes + self.pending_bytes


def plan(room_bytes: int, claims: Sequence[Claim]) -> list[int]:
    """How much of each claim should be on the GPU, in the order of the claims: soonest need first.

    `room_bytes` is what all claims together may have. Where that is too little for those on turn
    they are given all the same what they need: it is for the caller not to give them the turn.
    """
    left = room_bytes - sum(claim.resident_bytes for claim in claims if _stays(claim))
    left -= sum(claim.least_bytes for claim in claims if _goes(claim))
    on_turn = [claim for claim in claims if claim.rank is Rank.ON_TURN]
    are_served = all(claim.resident_bytes == claim.needed_bytes for claim in on_turn)
    targets = []
    for claim in claims:
        if claim.rank is Rank.ON_TURN:
            target = claim.total_bytes
            left -= claim.needed_bytes
        elif _stays(claim):
            target = claim.resident_bytes  # counted already
        else:
            most = max(0, left) + claim.least_bytes
            target = max(claim.least_bytes, _beside(claim, most, may_fetch=are_served))
            left -= target - claim.least_bytes
        targets.append(target)
    return targets


def stall_bytes(room_bytes: int, one: Claim, other: Claim) -> int:
    """What has to be exchanged while neither of the two can run, when the turn passes on."""
    return max(0, one.needed_bytes + other.needed_bytes - room_bytes)


def _stays(claim: Claim) -> bool:
    return not claim.can_go and claim.rank is not Rank.ON_TURN


def _goes(claim: Claim) -> bool:
    return claim.can_go and claim.rank is not Rank.ON_TURN


def _beside(claim: Claim, left: int, *, may_fetch: bool) -> int:
    """What those who have not the turn may have of what is left.

    Nothing is fetched for them while somebody on turn waits for memory: they would share the link.
    """
    if claim.rank is Rank.AWAY:
        return 0
    if may_fetch and (claim.rank is Rank.NEXT or claim.total_bytes <= left):
        return min(claim.total_bytes, left)
    return min(claim.resident_bytes, left)  # to fetch a part for later would be in vain
