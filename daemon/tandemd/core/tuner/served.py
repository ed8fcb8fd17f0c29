"""What people are told of the requests of a job. Nothing is decided by it.

Decisions go by `Job.latency`, which knows those of jobs that somebody wants to be quick: of class
latency, or with an objective that a person gave them. What a program itself says that its requests
are to take (`tandem.slo`) they are held against, and that is told, of any job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from tandemd.core.histogram import WAITS_NS, Histogram
from tandemd.core.tuner.latency import Latency, RequestKind

_ANY_NS = 1 << 62  # what a request may take whose mark says nothing: more than any says


@dataclass(slots=True)
class Served:
    """All requests of one job that ended.

    Each is held against what a person asked for, or else against what its own mark says. Counters
    only grow, however requests are told: who reads one takes one that shrinks for a new one.
    """

    counted: Histogram = field(default_factory=lambda: Histogram(WAITS_NS))
    missed: int = 0  # of these, how many took longer than they were to take then
    # The newest marked ones of a job that nothing is decided by.
    newest: Latency = field(default_factory=lambda: Latency(kind=RequestKind.MARKED))
    _allowed: Latency = field(default_factory=Latency)  # what the newest marks say
    _said_ns: int = 0  # what the newest of them says; 0 = nothing

    def add(
        self, durations_ns: Collection[int], said_ns: Sequence[int], now_ns: int, slo_ns: int
    ) -> None:
        """Requests that ended just now.

        `said_ns`: what the mark of each says, 0 = nothing; empty: none says anything. `slo_ns`:
        what a person asks for, which counts before that; 0 = nothing.
        """
        self.counted.add(durations_ns)
        limits_ns = repeat(slo_ns) if slo_ns else said_ns
        held = zip(durations_ns, limits_ns, strict=False)
        self.missed += sum(0 < limit_ns < took_ns for took_ns, limit_ns in held)
        if said_ns:
            self._allowed.add([limit_ns or _ANY_NS for limit_ns in said_ns], now_ns)
            self._said_ns = said_ns[-1]

    def marked_p99_ns(self, now_ns: int) -> int:
        """The p99 of requests that all take just what their marks allow; 0 = these say nothing.

        With one handler that is its number, and nothing where over 1 in 100 may take any time. With
        several it is what their p99 can be held against:
        while each request takes no longer than its own mark allows, it is no greater. Of the same
        requests as that; of the newest where there was none lately.
        """
        self._allowed.age(now_ns)
        allowed_ns = self._allowed.p99_ns or self._said_ns
        return allowed_ns if allowed_ns < _ANY_NS else 0
