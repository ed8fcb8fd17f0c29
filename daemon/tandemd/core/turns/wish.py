"""A job asks not to lose the GPU now (`tandem.critical`), and is heard within a bound.

The wish counts at the end of a quantum. What the holder gets by it is at most `critical_ns` a turn,
however often and for however long it asks, and counts as GPU time like any. A holder without work
is not heard: that time would be nobody's.
"""

from __future__ import annotations

from tandemd.core.model import Group, Options


class Wish:
    """That of the holder of a turn."""

    def __init__(self) -> None:
        self.heard_until_ns: int | None = None  # it keeps the turn so long; None: not by this
        self._end_ns: int | None = None  # then it is heard no longer in this turn

    def forget(self) -> None:
        """Another has the turn, or nobody waits for it."""
        self.heard_until_ns = self._end_ns = None

    def is_heard(self, holder: Group, options: Options, now_ns: int) -> bool:
        """Whether the holder keeps the turn, which it is to lose; `heard_until_ns` says how long.

        The first time in a turn is when its bound begins.
        """
        if now_ns >= holder.critical_until_ns:
            return False
        if self._end_ns is None:
            self._end_ns = now_ns + options.critical_ns
        if now_ns >= self._end_ns:
            return False
        self.heard_until_ns = min(self._end_ns, holder.critical_until_ns)
        return True
