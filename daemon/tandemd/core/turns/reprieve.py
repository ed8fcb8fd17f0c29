"""A holder keeps the turn past the end of its quantum, within bounds, for one of two reasons.

- It asks not to lose the GPU now (`tandem.critical`): for at most `critical_ns` a turn, however
  often and for however long it asks.
- Its iterations are not to be cut (`preemptible=no`, which Run:ai, too, keeps apart from priority):
  until the one ends that is under way, for at most `nonpreemptible_ns` a turn. Where its iterations
  are not known, until it has no work.

What it gets by that counts as GPU time like any. A holder without work is not heard: that time
would be nobody's. Nor is it where a more urgent tier waits, or one that is owed its share.
"""

from __future__ import annotations

from enum import Enum

from tandemd.core.model import Group, Options
from tandemd.core.turns.quantum import is_between_iterations


class Reason(Enum):
    """Why a holder keeps its turn."""

    CRITICAL = "critical"
    ITERATION = "preemptible=no"


class Reprieve:
    """That of the holder of a turn."""

    def __init__(self) -> None:
        self.until_ns: int | None = None  # it keeps the turn so long; None: not by this
        self.reason = Reason.CRITICAL  # the one by which it keeps it longest
        self._since_ns: int | None = None  # when it first was to lose the turn, and kept it

    def forget(self) -> None:
        """Another has the turn, or nobody waits for it."""
        self.until_ns = self._since_ns = None

    def is_given(self, holder: Group, options: Options, now_ns: int) -> bool:
        """Whether the holder keeps the turn, which it is to lose; `until_ns` says how long.

        The first time in a turn is when its bounds begin.
        """
        since_ns = now_ns if self._since_ns is None else self._since_ns
        most_ns = since_ns + options.critical_ns
        until_ns, reason = min(holder.critical_until_ns, most_ns), Reason.CRITICAL
        if not holder.preemptible and not is_between_iterations(holder):
            most_ns = since_ns + options.nonpreemptible_ns
            if most_ns > until_ns:
                until_ns, reason = most_ns, Reason.ITERATION
        if now_ns >= until_ns:
            return False
        self._since_ns = since_ns
        self.until_ns, self.reason = until_ns, reason
        return True
