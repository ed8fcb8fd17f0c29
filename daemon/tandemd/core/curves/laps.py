"""Where an iteration ends in a program that marks none.

The end that is found (iterations.md) is wherever the sequence of kernels was cut, and a job may
hold much memory there: stopped there, it is in everybody's way. Its memory curve tells where it
holds least. Once there is a curve, that place counts as the end of one iteration and the start of
the next, as iterations form a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.curves.curves import Curve


@dataclass(slots=True)
class Laps:
    """Which of these places one process has passed. Pure."""

    found: int = 0  # ends of iterations that were found so far
    low_ns: int | None = None  # in the curve that it goes by; None: it has none
    is_past: bool = False  # it has passed that place since the last end that was found

    def has_ended_one(self, found: int, progress_ns: int, curve: Curve | None) -> bool:
        """Tell whether an iteration has ended since the last look.

        `found`: how many ends were found; `progress_ns`: the work submitted since the newest of
        them.
        """
        was_found, self.found = found != self.found, found
        low_ns = None if curve is None else curve.low_ns
        was_past, self.is_past = self.is_past, low_ns is not None and progress_ns >= low_ns
        if low_ns != self.low_ns:  # another curve: what came before its place was counted already
            self.low_ns = low_ns
            return was_found and low_ns is None
        if low_ns is None:
            return was_found
        passed_unseen = was_found and not was_past
        return passed_unseen or (self.is_past and (was_found or not was_past))


def progress_in(curve: Curve, progress_ns: int) -> int:
    """Return the progress in `curve.from_low()`, given the progress since an end was found."""
    after_ns = progress_ns - curve.low_ns
    return after_ns if after_ns >= 0 else curve.length_ns + after_ns
