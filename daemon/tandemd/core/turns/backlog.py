"""Whether what a group has on the GPU ends by itself while the group is held.

Work behind a closed gate may wait for what its job has yet to submit, so a hold that does not drain
is given up. But what becomes less while nothing is added waits for nothing of the kind. It only
takes long, as a queue does that a program filled before it waits for the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

Standing = tuple[int, int]  # kernels and graphs submitted so far, and segments that have not ended
APART_NS = 2_000_000_000  # twice what a try lasts (turns.py)


@dataclass(slots=True)
class Backlog:
    """How what was submitted before a gate closed becomes less."""

    went_on_ns: int = 0  # when something of it ended last, since the gate closed
    pace_ns: int = 0  # how long that had taken: what a piece takes, where that is long
    _seen: Standing = (0, 0)  # when it last became less, or more was submitted
    _since_ns: int | None = None  # since when it was to end; None: it has

    def has_ended(self) -> None:
        """Nothing is left."""
        self._since_ns = None

    def begin(self, now_ns: int, stands: Standing, *, open_ns: int) -> None:
        """It is to end: the gate closed, which was open for so long before.

        After longer than between two tries this is another time: nobody waited for it meanwhile.
        """
        self._seen, self.went_on_ns = stands, now_ns
        if self._since_ns is None or open_ns > APART_NS:
            self._since_ns, self.pace_ns = now_ns, 0

    def goes_on(self, now_ns: int, stands: Standing, *, held: bool, at_most_ns: int) -> bool:
        """Whether it became less since the last look, with nothing that came after it was held.

        Never for longer than `at_most_ns` in all: others wait for it, and it may be a lie.
        """
        (submitted, left), (seen_submitted, seen_left) = stands, self._seen
        if held and submitted != seen_submitted:  # a thread was past the gate as that closed
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
        """When more of it has to have ended: at its pace, twice as long as the last took."""
        until_ns = (self._since_ns or 0) + at_most_ns
        return max(self.went_on_ns + drain_ns, min(self.went_on_ns + 2 * self.pace_ns, until_ns))
