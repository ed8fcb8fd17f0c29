"""Short work first, until longer work has waited too many times its own length.

PREMA's rule (Choi and Rhu, HPCA 2020). A piece of work, an iteration or a request, has tokens: the
priority of its class, and the same again for each time that it has waited as long as it takes.
Tokens are rounded down to a level. The highest level goes first, and within it the piece with the
shortest remaining time. A piece that thereby comes before the holder gets the turn at once if it
has less time remaining than the holder's piece, otherwise when that has ended: PREMA, too, preempts
or drains by which of the two loses less.

Priorities are the paper's 9, 3 and 1, not the weights of classes. Weights are shares of time, which
an admin may make equal, and levels must not move. Two things differ, because the paper's tasks
arrive once and end, while jobs ask again and again. The paper's levels end with the highest
priority, so a few short jobs could stay ahead of a longer one forever: here levels continue in the
same steps. And remaining times less than a quarter apart are equal: of those pieces, the one that
began first goes first.

The cost of a piece is known once two have ended (pieces.py). Until then a quantum of GPU time is a
piece: it preempts nobody, and is preempted by any piece that is known to be shorter.
"""

from __future__ import annotations

from bisect import bisect_right

from tandemd.core.model import Group, JobClass
from tandemd.core.policies.policy import Policy
from tandemd.core.words import span_of

# Level of each class's priority.
FIRST = {JobClass.BATCH: 0, JobClass.NORMAL: 1, JobClass.LATENCY: 2}
LEVELS: tuple[int, ...] = tuple(3**number for number in range(31))  # in tokens
_SLOWDOWNS = LEVELS[: -max(FIRST.values())]  # slowdowns at which the next levels are reached
DAY_NS = 24 * 3600 * 10**9  # longer remaining times all count as this
SIZES = 256  # exceeds the number of size classes
MS = 1_000_000
# The rank, which has 13 bits, is followed by the start of the piece in milliseconds: of a float's
# 53 bits, 36 are enough for two years.
RANK = 2**36


class Token(Policy):
    """The highest level of tokens goes next; within a level, the shortest remaining time."""

    description = "short iterations and requests first, until others have waited in proportion"
    by_pieces = True

    def order(self, group: Group) -> float:
        """By level, then remaining time, then start."""
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
        """Tell whether the end of its piece is predictable."""
        return group.piece.is_foreseen(group.served_ns)

    def preempts(self, challenger: Group, holder: Group) -> bool:
        """Tell whether the challenger goes first and is known to end before the holder would."""
        piece, served_ns = challenger.piece, challenger.served_ns
        return (
            self.may_cut(challenger)
            and piece.left_ns(served_ns) < holder.piece.left_ns(holder.served_ns)
            and self.order(challenger) < self.order(holder)
        )

    def why_waits(self, group: Group, holder: Group, now_ns: int) -> str:
        """Tokens if the levels differ, otherwise what is left of both."""
        own, other = (one.piece.left_ns(one.served_ns) for one in (group, holder))
        rests = (
            f"{span_of(other)} is left of its {holder.piece.kind.word}, {span_of(own)} of this one"
        )
        if self.order(group) < self.order(holder):
            return f"until that ends: {rests}"
        if level(group) == level(holder):
            return f"and goes first: {rests}"
        has, own_tokens = (f"{tokens(one, now_ns):.1f}" for one in (holder, group))
        return f"and goes first: it has {has} tokens, this one {own_tokens}"


def tokens(group: Group, now_ns: int) -> float:
    """Tokens of its piece of work."""
    piece = group.piece
    slowdown = 1 + piece.waited_by_ns(now_ns, group.hold_since_ns) / max(1, piece.usual_ns)
    return LEVELS[FIRST[group.job_class]] * slowdown


def level(group: Group) -> int:
    """Level of its tokens, by its wait as last accounted."""
    return FIRST[group.job_class] + bisect_right(_SLOWDOWNS, _slowdown(group)) - 1


def _slowdown(group: Group) -> int:
    """Its cost plus its wait, over its cost."""
    usual_ns = max(1, group.piece.usual_ns)
    return (usual_ns + group.piece.waited_ns) // usual_ns


def _size(left_ns: int) -> int:
    """Size class of a remaining time: four per octave."""
    left_ns = min(left_ns, DAY_NS)
    octave = left_ns.bit_length()
    return 4 * octave + ((left_ns >> max(0, octave - 3)) & 3)
