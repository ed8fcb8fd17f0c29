"""Where an iteration ends whose program marks none.

The end that is found (iterations.md) is wherever the sequence of kernels was cut, and a job may
hold much there: stopped there, it is in everybody's way. Its memory curve tells where it holds
least. Once there is one, that place is where one iteration ends and the next begins: it is a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.curves.curves import Curve


@dataclass(slots=True)
class Laps:
    """Of one process: which of its places it has passed. Pure."""

    found: int = 0  # ends of iterations, so far
    low_ns: int | None = None  # of the curve that it goes by; None: it has none
    is_past: bool = False  # it has passed that place since the last end that was found

    def has_ended_one(self, found: int, progress_ns: int, curve: Curve | None) -> bool:
        """Whether an iteration has ended since the last look.

        `found`: how many ends were found; `progress_ns`: the work that was handed over since then.
        """
        was_found, self.found = found != self.found, found
        low_ns = None if curve is None else curve.low_ns
        was_past, self.is_past = self.is_past, low_ns is not None and progress_ns >= low_ns
        if low_ns != self.low_ns:  # by another curve: what lies behind it there has been counted
            self.low_ns = low_ns
            return was_found and low_ns is None
        if low_ns is None:
            return was_found
        passed_unseen = was_found and not was_past
        return passed_unseen or (self.is_past and (was_found or not was_past))


def progress_in(curve: Curve, progress_ns: int) -> int:
    """In its `from_low()`, of one that has come so far since an end was found."""
    after_ns = progress_ns - curve.low_ns
    return after_ns if after_ns >= 0 else curve.length_ns + after_ns
