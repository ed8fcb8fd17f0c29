"""Tells whether a held group's in-flight work drains by itself.

In-flight work may depend on work that its job cannot submit while the gate is closed, so a hold
that does not drain is abandoned. A backlog that keeps shrinking while nothing is added has no such
dependency: it is only long, like a queue that a program filled up before synchronizing.
"""

from __future__ import annotations

from dataclasses import dataclass

Standing = tuple[int, int]  # kernels and graphs submitted so far, and segments in flight
APART_NS = 2_000_000_000  # twice what a try lasts (turns.py)


@dataclass(slots=True)
class Backlog:
    """How the work submitted before a gate closed shrinks."""

    went_on_ns: int = 0  # when part of it last ended, or else when the gate closed
    pace_ns: int = 0  # how long that part took
    _seen: Standing = (0, 0)  # when the backlog last shrank or grew
    _since_ns: int | None = None  # start of the drain; None: it is drained

    def has_ended(self) -> None:
        """Note that nothing is left."""
        self._since_ns = None

    def begin(self, now_ns: int, stands: Standing, *, open_ns: int) -> None:
        """Start to watch the backlog: the gate closed after it was open for `open_ns`.

        If that is longer than the pause between two tries, this is a new drain, since nobody waited
        for it meanwhile.
        """
        self._seen, self.went_on_ns = stands, now_ns
        if self._since_ns is None or open_ns > APART_NS:
            self._since_ns, self.pace_ns = now_ns, 0

    def goes_on(self, now_ns: int, stands: Standing, *, held: bool, at_most_ns: int) -> bool:
        """Tell whether the backlog shrank since the last look, with nothing added meanwhile.

        Never for longer than `at_most_ns` in all: others wait for it, and the claim may be a lie.
        """
        (submitted, left), (seen_submitted, seen_left) = stands, self._seen
        if held and submitted != seen_submitted:  # a thread had passed the gate as it closed
            self._seen = stands
            return False
        if submitted != seen_submitted or left >= seen_left or self._since_ns is None:
            return False
        self._seen = stands
        if now_ns - self._since_ns >= at_most_ns:
            return False
        self.pace_ns, self.went_on_ns = now_ns - self.went_on_ns, now_ns
        return True

    def due_ns(self, drain_ns: int, *, at_most_ns: int) -> int:
        """Deadline for more of it to end: `drain_ns`, or twice as long as the last part took."""
        until_ns = (self._since_ns or 0) + at_most_ns
        return max(self.went_on_ns + drain_ns, min(self.went_on_ns + 2 * self.pace_ns, until_ns))
