"""Short work first, until longer work has waited for too many times its own length.

PREMA's rule (Choi and Rhu, HPCA 2020). A piece of work, an iteration or a request, has tokens: the
priority of its class, and as much again for each time that it has waited as long as it takes. They
are rounded down to a level; who is on the highest goes before the others, and of those who goes
next is whose rest is shortest. Whoever comes before the holder by that has the turn at once if its
rest is shorter than the holder's, and else when the holder's piece has ended: PREMA, too, cuts or
drains by which of the two loses less.

Priorities are the paper's 9, 3 and 1, and not the weights of classes: these are shares of time,
which an admin may make equal, and levels that move would be none. Two things differ, for the
paper's tasks come once and end, and jobs ask again and again. Its levels end with the highest
priority, so that a few short jobs could stay before a longer one for ever: here they go on in the
same steps. And rests less than a quarter apart are alike: of those who began first goes first.

What one takes is known once two have ended (pieces.py). Before, a quantum of GPU time is a piece:
it cuts nobody, and is cut by whoever is known to be shorter.
"""

from __future__ import annotations

from bisect import bisect_right

from tandemd.core.model import Group, JobClass
from tandemd.core.policies.policy import Policy
from tandemd.core.words import span_of

FIRST = {JobClass.BATCH: 0, JobClass.NORMAL: 1, JobClass.LATENCY: 2}  # the level of a priority
LEVELS: tuple[int, ...] = tuple(3**number for number in range(31))  # in tokens
_SLOWDOWNS = LEVELS[: -max(FIRST.values())]  # at which each next level is reached
DAY_NS = 24 * 3600 * 10**9  # the longest rest that is told from others
SIZES = 256  # more than there are classes of rests
MS = 1_000_000
# Behind the rank, which has 13 bits, comes when the piece began, in milliseconds: of the 53 bits
# of a float 36 are enough for two years.
RANK = 2**36


class Token(Policy):
    """Whose tokens are on the highest level goes next, and of several whose rest is shortest."""

    description = "short iterations and requests first, until others have waited in proportion"
    by_pieces = True

    def order(self, group: Group) -> float:
        """The level, then the rest, and where both are alike who began first."""
        piece = group.piece
        rank = SIZES * (len(LEVELS) - level(group)) + _size(piece.left_ns(group.served_ns))
        return rank * RANK + piece.began_ns // MS

    def look_again_ns(self, group: Group) -> int | None:
        """When its tokens reach the next level."""
        following = bisect_right(_SLOWDOWNS, _slowdown(group))
        if group.hold_since_ns is None or following == len(_SLOWDOWNS):
            return None
        needed_ns = (_SLOWDOWNS[following] - 1) * group.piece.usual_ns
        return group.piece.waits_from_ns(group.hold_since_ns) + needed_ns

    def may_cut(self, group: Group) -> bool:
        """If it is known when its piece would end."""
        return group.piece.is_foreseen(group.served_ns)

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """One that goes first, and is known to end before the holder would."""
        piece, served_ns = challenger.piece, challenger.served_ns
        return (
            self.may_cut(challenger)
            and piece.left_ns(served_ns) < holder.piece.left_ns(holder.served_ns)
            and self.order(challenger) < self.order(holder)
        )

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """Tokens, where the levels differ, or else what is left of both."""
        own, other = (one.piece.left_ns(one.served_ns) for one in (group, holder))
        rests = f"{span_of(other)} are left of its {holder.piece.kind.word}, {span_of(own)} here"
        if self.order(group) < self.order(holder):
            return f"until that ends: {rests}"
        if level(group) == level(holder):
            return f"and goes first: {rests}"
        has, own_tokens = (f"{tokens(one, now_ns):.1f}" for one in (holder, group))
        return f"and goes first: {has} tokens, {own_tokens} here"


def tokens(group: Group, now_ns: int) -> float:
    """Of its piece of work."""
    piece = group.piece
    slowdown = 1 + piece.waited_by_ns(now_ns, group.hold_since_ns) / max(1, piece.usual_ns)
    return LEVELS[FIRST[group.job_class]] * slowdown


def level(group: Group) -> int:
    """Of its tokens, as of the newest account of what it has waited."""
    return FIRST[group.job_class] + bisect_right(_SLOWDOWNS, _slowdown(group)) - 1


def _slowdown(group: Group) -> int:
    """What it takes and has waited, by what it takes."""
    usual_ns = max(1, group.piece.usual_ns)
    return (usual_ns + group.piece.waited_ns) // usual_ns


def _size(left_ns: int) -> int:
    """Class of a rest: four an octave."""
    left_ns = min(left_ns, DAY_NS)
    octave = left_ns.bit_length()
    return 4 * octave + ((left_ns >> max(0, octave - 3)) & 3)
