"""A piece of work, an iteration or a request: its GPU time, and how long it waited.

The cost of a piece is counted in the group's own GPU time, so it does not include waiting. It is
predicted from the newest ten pieces (as in Clockwork; Gujarati et al., OSDI 2020): their median is
the usual cost, and the longest of them the highest cost to expect. Iterations take precedence over
requests, since a request may be several iterations. Where neither is known, a quantum of GPU time
counts as a piece, because nobody can tell which part of the work it is. A piece that outlasts all
known ones counts as one that has just begun.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

NEWEST = 10
LEAST_NS = 100_000  # the poller's rounds of a millisecond cannot tell shorter ones apart


class Kind(IntEnum):
    """What a group's pieces are: the highest kind seen so far."""

    QUANTUM = 0
    REQUEST = 1
    ITERATION = 2

    @property
    def word(self) -> str:
        """The word for such a piece, for people."""
        return "turn" if self is Kind.QUANTUM else self.name.lower()


@dataclass(slots=True)
class Piece:
    """A group's current or next piece. `served_ns` is all GPU time of the group."""

    kind: Kind = Kind.QUANTUM
    began_ns: int = 0  # when the group first wanted the GPU for it
    waited_ns: int = 0  # wait for the GPU since then, as of the last `account`
    usual_ns: int = 0  # usual GPU time of a piece
    most_ns: int = 0  # GPU time of the longest of the newest pieces
    _began_served_ns: int = 0
    _accounted_ns: int = 0
    _newest_ns: deque[int] = field(default_factory=lambda: deque(maxlen=NEWEST))

    @property
    def is_known(self) -> bool:
        """Tell whether the cost of a piece was measured; otherwise a quantum stands for it."""
        return bool(self._newest_ns)

    def is_fresh(self, served_ns: int) -> bool:
        """Tell whether none of it has been computed yet."""
        return served_ns == self._began_served_ns

    def is_foreseen(self, served_ns: int) -> bool:
        """Tell whether its end is predictable: it has not outlasted all known pieces."""
        return self.is_known and self._done_ns(served_ns) < self.most_ns

    def left_ns(self, served_ns: int) -> int:
        """GPU time that it usually still takes."""
        return self._left_of(self.usual_ns, served_ns)

    def most_left_ns(self, served_ns: int) -> int:
        """The most GPU time that it should still take, as far as is known."""
        return self._left_of(self.most_ns, served_ns)

    def waits_from_ns(self, hold_since_ns: int) -> int:
        """When its wait would have begun had it been one unbroken wait until now."""
        return max(hold_since_ns, self._accounted_ns) - self.waited_ns

    def waited_by_ns(self, now_ns: int, hold_since_ns: int | None) -> int:
        """Its wait so far, the wait in progress included."""
        return (
            self.waited_ns if hold_since_ns is None else now_ns - self.waits_from_ns(hold_since_ns)
        )

    def begin(self, served_ns: int, now_ns: int) -> None:
        """Note that the group wants the GPU again; a known piece in progress continues."""
        if self.kind is Kind.QUANTUM or self.is_fresh(served_ns):
            self._start(served_ns, now_ns)

    def end(self, kind: Kind, count: int, served_ns: int, now_ns: int) -> None:
        """Note that `count` pieces ended; the first of a new kind began unseen: not measured."""
        if kind < self.kind:
            return
        if kind is self.kind:
            self._learn(max(LEAST_NS, self._done_ns(served_ns) // count), count)
        else:
            self._newest_ns.clear()
        self.kind = kind
        self._start(served_ns, now_ns)

    def take_quantum(self, quantum_ns: int, served_ns: int, now_ns: int) -> None:
        """Use a quantum as the piece where no cost is known."""
        if self.is_known:
            return
        self.usual_ns = self.most_ns = quantum_ns
        if self.kind is Kind.QUANTUM and self._done_ns(served_ns) >= quantum_ns:
            self._start(served_ns, now_ns)

    def account(self, hold_since_ns: int, now_ns: int) -> None:
        """Add the wait since `hold_since_ns`, which goes on."""
        self.waited_ns += max(0, now_ns - max(hold_since_ns, self._accounted_ns))
        self._accounted_ns = now_ns

    def _start(self, served_ns: int, now_ns: int) -> None:
        self.began_ns, self.waited_ns, self._accounted_ns = now_ns, 0, now_ns
        self._began_served_ns = served_ns

    def _learn(self, each_ns: int, count: int) -> None:
        self._newest_ns.extend([each_ns] * min(count, NEWEST))
        in_order = sorted(self._newest_ns)
        self.usual_ns, self.most_ns = in_order[(len(in_order) - 1) // 2], in_order[-1]

    def _done_ns(self, served_ns: int) -> int:
        return served_ns - self._began_served_ns

    def _left_of(self, whole_ns: int, served_ns: int) -> int:
        done_ns = self._done_ns(served_ns)
        if done_ns < whole_ns:
            return whole_ns - done_ns
        return self.most_ns - done_ns if done_ns < self.most_ns else whole_ns
