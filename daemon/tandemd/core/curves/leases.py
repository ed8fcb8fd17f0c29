"""How much more each of several jobs may take so that all of them can end their iterations.

Dijkstra's banker, for iterations: memory is lent only as long as one of the jobs, the *first*,
could take all that it still needs and end its iteration, whatever the others do. Then it holds
little again, and another is the first. So whoever drifts from its curve waits for memory, and
nobody waits for ever; handed out as long as there is some, it would lock up (Salus, MLSys 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job in the middle of an iteration."""

    more_bytes: int | None  # the most it will still take until that ends; None: nobody knows
    left_ns: int  # of its work until then; of those that nobody knows, the order
    freed_bytes: int | None = None  # by then, of what it holds; < 0: it keeps more; None: who knows

    def can_end(self, free_bytes: int) -> bool:
        """With so much more, its iteration ends for sure."""
        return _lack(self) <= free_bytes


def lend(claims: Sequence[Claim], free_bytes: int) -> list[int]:
    """What each may take now of what nobody holds; two at most get some.

    The first is the one with the least work left of those that can end with what is free; where
    none can, the one that lacks least. What it will not need is lent to the next, unless that one
    could not end beside what the first keeps: each would then have what the other needs.
    """
    lent = [0] * len(claims)
    if not claims or free_bytes <= 0:
        return lent
    order = sorted(range(len(claims)), key=lambda i: _rank(claims[i]))
    can_end = (i for i in order if claims[i].can_end(free_bytes))
    first = next(can_end, min(order, key=lambda i: _lack(claims[i])))
    more_bytes = claims[first].more_bytes
    lent[first] = free_bytes if more_bytes is None else min(free_bytes, more_bytes)
    others = [i for i in order if i != first]
    if others and not _ends_after(claims[others[0]], claims[first], free_bytes):
        return lent
    lent[others[0] if others else first] += free_bytes - lent[first]
    return lent


def _ends_after(second: Claim, first: Claim, free_bytes: int) -> bool:
    """Beside what the first keeps at its end; also if that cannot be said."""
    if first.freed_bytes is None or second.more_bytes is None:
        return True
    return second.can_end(free_bytes + first.freed_bytes)


def _rank(claim: Claim) -> tuple[bool, int]:
    return claim.more_bytes is None, claim.left_ns


def _lack(claim: Claim) -> float:
    return float("inf") if claim.more_bytes is None else claim.more_bytes
