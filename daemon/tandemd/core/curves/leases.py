"""How much more memory each of several jobs may take so that all can end their iterations.

This is Dijkstra's banker for iterations: memory is lent only as long as one of the jobs, the
*first*, could take all that it still needs and end its iteration, whatever the others do. Then it
holds little again, and another job is the first. So a job that drifts from its curve waits for
memory, but nobody waits for ever. Handing out memory as long as there is some would deadlock
(Salus, MLSys 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim of a job in the middle of an iteration."""

    more_bytes: int | None  # the most it will still take until it ends; None: not known
    left_ns: int  # of its work until then; if `more_bytes` is None, its rank among such jobs
    freed_bytes: int | None = None  # by then, of what it holds; < 0: it keeps more; None: not known

    def can_end(self, free_bytes: int) -> bool:
        """Tell whether its iteration ends for sure with this much more memory."""
        return _lack(self) <= free_bytes


def lend(claims: Sequence[Claim], free_bytes: int) -> list[int]:
    """Return what each may take now of the memory that nobody holds; at most two get some.

    The first is the job with the least work left among those that can end with what is free, or, if
    none can, the one that lacks least. What it will not need is lent to the next job, unless that
    one could not end beside what the first keeps: then each would have what the other needs.
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
    """Tell whether it can end beside what the first keeps at its end; True if not known."""
    if first.freed_bytes is None or second.more_bytes is None:
        return True
    return second.can_end(free_bytes + first.freed_bytes)


def _rank(claim: Claim) -> tuple[bool, int]:
    return claim.more_bytes is None, claim.left_ns


def _lack(claim: Claim) -> float:
    return float("inf") if claim.more_bytes is None else claim.more_bytes
