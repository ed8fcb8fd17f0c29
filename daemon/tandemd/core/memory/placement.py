"""Plans whose memory is on a GPU that has no room for everybody's; pure and stateless.

When the turn passes, only bytes that do not fit beside the group that runs have to move. So a plan
takes from the others no more than the group on turn needs, first from the group whose own turn is
furthest away (Belady's rule at the level of turns). It fills what is left with memory of the next
group, which can move while others compute (Wavelet, Wang et al., EuroSys 2021).
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
    AWAY = 3  # not before a person, or a call of its own, says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one group has that can be moved, in bytes."""

    rank: Rank
    total_bytes: int
    resident_bytes: int
    pending_bytes: int = 0  # that it requests in addition
    can_go: bool = True  # it has nothing in flight on the GPU
    kept_bytes: int = 0  # of the total, never moved out: a promised minimum
    stuck_bytes: int = 0  # of what is resident, the part that the host has no room for

    @property
    def least_bytes(self) -> int:
        """What stays on the GPU whoever needs the room."""
        return max(self.kept_bytes, self.stuck_bytes)

    @property
    def needed_bytes(self) -> int:
        """What has to be on the GPU for it to run."""
        return self.total_bytes + self.pending_bytes


def plan(room_bytes: int, claims: Sequence[Claim]) -> list[int]:
    """Return how much of each claim should be on the GPU; claims come soonest need first.

    `room_bytes` is what all claims together may have. Groups on turn get what they need even if
    that is more than the room: it is up to the caller not to give them the turn.
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
    """Return how much must be exchanged, while neither can run, when the turn passes on."""
    return max(0, one.needed_bytes + other.needed_bytes - room_bytes)


def _stays(claim: Claim) -> bool:
    return not claim.can_go and claim.rank is not Rank.ON_TURN


def _goes(claim: Claim) -> bool:
    return claim.can_go and claim.rank is not Rank.ON_TURN


def _beside(claim: Claim, left: int, *, may_fetch: bool) -> int:
    """Return what a group without the turn may have of what is left.

    Nothing is fetched for it while somebody on turn waits for memory: the two would share the link.
    """
    if claim.rank is Rank.AWAY:
        return 0
    if may_fetch and (claim.rank is Rank.NEXT or claim.total_bytes <= left):
        return min(claim.total_bytes, left)
    return min(claim.resident_bytes, left)  # fetching only a part for later would be useless
