"""What people are told about a job's requests. Nothing is decided by it.

Decisions go by `Job.latency`, which covers only jobs that somebody wants to be quick: those of
class latency, or with an objective that a person set. Here the requests of any job are also held
against what the program itself says that they may take (`tandem.slo`), and that is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from tandemd.core.histogram import WAITS_NS, Histogram
from tandemd.core.tuner.latency import Latency, RequestKind

_ANY_NS = 1 << 62  # allowed to a request whose mark sets no limit: more than any mark says


@dataclass(slots=True)
class Served:
    """All requests of one job that ended.

    Each is held against what a person asked for, or else against what its own mark says. Counters
    only grow, even when requests are told apart in another way, because readers take a counter that
    shrinks for a new one.
    """

    counted: Histogram = field(default_factory=lambda: Histogram(WAITS_NS))
    missed: int = 0  # of these, how many took longer than allowed at the time
    # The newest marked requests of a job whose requests decide nothing.
    newest: Latency = field(default_factory=lambda: Latency(kind=RequestKind.MARKED))
    _allowed: Latency = field(default_factory=Latency)  # by the newest marks
    _said_ns: int = 0  # by the newest of them; 0 = no limit

    def add(
        self, durations_ns: Collection[int], said_ns: Sequence[int], now_ns: int, slo_ns: int
    ) -> None:
        """Take in requests that just ended.

        `said_ns`: what the mark of each allows, 0 = no limit; empty: no mark sets any. `slo_ns`:
        what a person asks for, which takes precedence; 0 = nothing.
        """
        self.counted.add(durations_ns)
        limits_ns = repeat(slo_ns) if slo_ns else said_ns
        held = zip(durations_ns, limits_ns, strict=False)
        self.missed += sum(0 < limit_ns < took_ns for took_ns, limit_ns in held)
        if said_ns:
            self._allowed.add([limit_ns or _ANY_NS for limit_ns in said_ns], now_ns)
            self._said_ns = said_ns[-1]

    def marked_p99_ns(self, now_ns: int) -> int:
        """The p99 of requests that all take just what their marks allow; 0 = these set no limit.

        With one handler it is the handler's number; it is 0 if more than 1 in 100 requests may take
        any time. With several handlers it is what their p99 can be held against: while each request
        takes no longer than its own mark allows, their p99 is no greater. It covers the same
        requests as that p99, or the newest mark if there was no request lately.
        """
        self._allowed.age(now_ns)
        allowed_ns = self._allowed.p99_ns or self._said_ns
        return allowed_ns if allowed_ns < _ANY_NS else 0
