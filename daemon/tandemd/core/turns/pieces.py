"""A piece of work, an iteration or a request: what one takes of the GPU, and how long it waited.

What one takes is counted in the group's own GPU time, so that waiting is no part of it, and is
foretold from the newest ten (as Clockwork does; Gujarati et al., OSDI 2020): their median is what
one usually takes, the longest of them what one takes at most. Iterations count before requests,
which may be several of them. Where neither is known a quantum of GPU time is a piece: nobody can
tell which part of the work that is. A piece that outlasts all that is known counts as one that has
just begun.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

NEWEST = 10
LEAST_NS = 100_000  # rounds of a millisecond do not tell shorter ones apart


class Kind(IntEnum):
    """What the pieces of a group are; the highest that was ever seen."""

    QUANTUM = 0
    REQUEST = 1
    ITERATION = 2

    @property
    def word(self) -> str:
        """As people call one."""
        return "turn" if self is Kind.QUANTUM else self.name.lower()


@dataclass(slots=True)
class Piece:
    """The one that a group is at, or begins next. `served_ns` is all GPU time of the group."""

    kind: Kind = Kind.QUANTUM
    began_ns: int = 0  # when the group first wanted the GPU for it
    waited_ns: int = 0  # for the GPU since it began, as of the newest account of that
    usual_ns: int = 0  # of GPU time
    most_ns: int = 0
    _began_served_ns: int = 0
    _accounted_ns: int = 0
    _newest_ns: deque[int] = field(default_factory=lambda: deque(maxlen=NEWEST))

    @property
    def is_known(self) -> bool:
        """What one takes was seen; else a quantum stands for it."""
        return bool(self._newest_ns)

    def is_fresh(self, served_ns: int) -> bool:
        """Nothing of it was computed yet."""
        return served_ns == self._began_served_ns

    def is_foreseen(self, served_ns: int) -> bool:
        """It is known when it ends: it has not taken longer than any before."""
        return self.is_known and self._done_ns(served_ns) < self.most_ns

    def left_ns(self, served_ns: int) -> int:
        """GPU time that it still takes, usually."""
        return self._left_of(self.usual_ns, served_ns)

    def most_left_ns(self, served_ns: int) -> int:
        """The same at most, as far as anybody knows."""
        return self._left_of(self.most_ns, served_ns)

    def waits_from_ns(self, hold_since_ns: int) -> int:
        """When it would have begun to wait, had it waited without a break until now."""
        return max(hold_since_ns, self._accounted_ns) - self.waited_ns

    def waited_by_ns(self, now_ns: int, hold_since_ns: int | None) -> int:
        """What it has waited, the wait included that is not over."""
        return (
            self.waited_ns if hold_since_ns is None else now_ns - self.waits_from_ns(hold_since_ns)
        )

    def begin(self, served_ns: int, now_ns: int) -> None:
        """The group wants the GPU again; in the midst of a piece that is known it goes on."""
        if self.kind is Kind.QUANTUM or self.is_fresh(served_ns):
            self._start(served_ns, now_ns)

    def end(self, kind: Kind, count: int, served_ns: int, now_ns: int) -> None:
        """So many have ended, and the next begins; the first of a kind had begun unseen."""
        if kind < self.kind:
            return
        if kind is self.kind:
            self._learn(max(LEAST_NS, self._done_ns(served_ns) // count), count)
        else:
            self._newest_ns.clear()
        self.kind = kind
        self._start(served_ns, now_ns)

    def take_quantum(self, quantum_ns: int, served_ns: int, now_ns: int) -> None:
        """Where nothing is known, that is a piece."""
        if self.is_known:
            return
        self.usual_ns = self.most_ns = quantum_ns
        if self.kind is Kind.QUANTUM and self._done_ns(served_ns) >= quantum_ns:
            self._start(served_ns, now_ns)

    def account(self, hold_since_ns: int, now_ns: int) -> None:
        """It waits since then, and still does."""
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
