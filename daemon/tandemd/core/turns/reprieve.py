"""A holder may keep the turn past the end of its quantum, within bounds, for two reasons.

- It asks to keep the GPU now (`tandem.critical`): for at most `critical_ns` per turn, however often
  and however long it asks.
- Its iterations must not be cut (`preemptible=no`, which Run:ai also keeps apart from priority):
  until the current iteration ends, for at most `nonpreemptible_ns` per turn. If its iterations are
  not known, until it has no work.

The extra time counts as GPU time like any other. A holder without work gets none, since nobody
would use it. Nor does a holder get any while a more urgent tier waits, or one that is owed its
share.
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
    """The reprieve of a turn's holder."""

    def __init__(self) -> None:
        self.until_ns: int | None = None  # how long it keeps the turn; None: no reprieve
        self.reason = Reason.CRITICAL  # the reason that lasts longest
        self._since_ns: int | None = None  # when it first would have lost the turn but kept it

    def forget(self) -> None:
        """Reset: another group has the turn, or nobody waits for it."""
        self.until_ns = self._since_ns = None

    def is_given(self, holder: Group, options: Options, now_ns: int) -> bool:
        """Tell whether the holder keeps the turn that it should lose, until `until_ns`.

        The bounds count from the first reprieve in a turn.
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
