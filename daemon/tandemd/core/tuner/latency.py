"""How long the requests of a job take: the newest of them, and what their percentiles are.

A request is what a job says it is (`tandem.slo`), else what lies between two of its step marks, or
else a burst of work: from the first thing asked of the idle GPU until all of it has ended. In all
three waiting for a turn is part of it (csrc/core/dag/requests.h).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import repeat
from math import ceil, inf, sqrt

SPAN_NS = 30_000_000_000  # so old a request may be
MOST = 4096
ENOUGH = 20  # of a short time: of fewer it is no rate
LOAD_CHANGE = 0.25  # that is another load,
SIGMAS = 4  # if it is no chance: requests are counted as if they came by themselves
NO_CHANCE = 5  # so many are expected by chance: once in 150 times there is none (Poisson)


class RequestKind(IntEnum):
    """How requests are told; values are those of dag::RequestKind."""

    BURST = 0
    STEP = 1
    MARKED = 2


@dataclass(frozen=True, slots=True)
class Rhythm:
    """What a request of a job takes that hardly waits, and on how many SMs (pauses.py).

    Of who has none what an iteration has of the GPU.
    """

    quick_ns: int
    sms: int
    is_of_requests: bool = False


@dataclass(slots=True)
class Latency:
    """The newest requests of one job: at most MOST, none older than SPAN_NS.

    They are kept in order of their durations, too: decisions about turns ask for the percentile.
    """

    kind: RequestKind = RequestKind.BURST
    moved_ns: int = 0  # since when the job is on the SMs that it is on
    # When each ended, what it took, and for how much of that its process was held.
    _ended: deque[tuple[int, int, int]] = field(default_factory=deque)
    _sorted_ns: list[int] = field(default_factory=list)
    _overlapped_ns: int = -SPAN_NS  # when two were under way, last

    def add(
        self,
        durations_ns: Collection[int],
        now_ns: int,
        at_once: int = 0,
        held_ns: Collection[int] = (),
    ) -> None:
        """Requests that ended just now, and the most that were under way meanwhile.

        `held_ns`: for how much of each its process was held; empty: none was.
        """
        if at_once > 1:
            self._overlapped_ns = now_ns
        for duration_ns, away_ns in zip(durations_ns, held_ns or repeat(0), strict=False):
            if len(self._ended) == MOST:
                self._drop()
            self._ended.append((now_ns, duration_ns, away_ns))
            insort(self._sorted_ns, duration_ns)
        self.age(now_ns)

    def age(self, now_ns: int) -> None:
        """Forget what is too old."""
        while self._ended and now_ns - self._ended[0][0] > SPAN_NS:
            self._drop()

    def restart(self, kind: RequestKind) -> None:
        """They are told in another way from now on: the two are not compared."""
        self.kind = kind
        self._ended.clear()
        self._sorted_ns.clear()
        self._overlapped_ns = -SPAN_NS

    @property
    def count(self) -> int:
        """Of how many requests the rest is."""
        return len(self._ended)

    @property
    def p99_ns(self) -> int:
        """99 of 100 requests took no longer; 0 = there was none."""
        return percentile_of(self._sorted_ns, 0.99)

    @property
    def quick_ns(self) -> int:
        """A tenth of the requests took no longer: what one takes that hardly waits; 0 = none."""
        return percentile_of(self._sorted_ns, 0.1)

    def since_moved_ns(self) -> list[int]:
        """Durations of those that began on the SMs that the job is on."""
        return [took_ns for end_ns, took_ns, _ in self._ended if end_ns - took_ns >= self.moved_ns]

    def needed_since_moved_ns(self) -> list[int]:
        """What they took less what they were held."""
        since_ns = self.moved_ns
        return [took - held for end, took, held in self._ended if end - took >= since_ns]

    @property
    def rate(self) -> float:
        """Requests a second; 0 = not known."""
        if len(self._ended) < 2:
            return 0.0
        span_ns = self._ended[-1][0] - self._ended[0][0]
        return (len(self._ended) - 1) / (span_ns / 1e9) if span_ns else 0.0

    def is_serial(self, now_ns: int) -> bool:
        """Each begins after the one before has ended, as far as requests of one process tell.

        Marked ones may overlap: that they do not is told where many would if they came by chance.
        """
        if self.kind is not RequestKind.MARKED:
            return True
        overlaps = self.rate * sum(self._sorted_ns) / 1e9  # that are to be expected then
        return now_ns - self._overlapped_ns > SPAN_NS and overlaps > NO_CHANCE

    def steady_rate(self, span_ns: int, now_ns: int) -> tuple[float, int]:
        """The rate of the newest requests, and of how many that is told; (0, 0) = not known.

        Of the last `span_ns` at least, and of twice as long again and again while what came before
        is no other load (as ADWIN does; Bifet and Gavalda, SDM 2007): so it is as sure as the load
        is steady, and follows when that changes. Where those are too few, of all. Who asks for
        nothing any more counts as when it did.
        """
        if self._ended and self._ended[-1][0] < now_ns - span_ns:
            now_ns = self._ended[-1][0]
        count, lasted_ns = self._since(now_ns - span_ns), span_ns
        while self._ended and now_ns - 2 * lasted_ns >= self._ended[0][0]:
            more = self._since(now_ns - 2 * lasted_ns) - count
            if count >= ENOUGH and is_another_load(count, lasted_ns, more, lasted_ns):
                break
            count, lasted_ns = count + more, 2 * lasted_ns
        if count < ENOUGH:
            return (rate, self.count) if (rate := self.rate) else (0.0, 0)
        return count / (lasted_ns / 1e9), count

    def _since(self, then_ns: int) -> int:
        return len(self._ended) - bisect_right(self._ended, (then_ns, inf))

    def _drop(self) -> None:
        """The oldest."""
        _, duration_ns, _ = self._ended.popleft()
        del self._sorted_ns[bisect_left(self._sorted_ns, duration_ns)]


def is_another_load(count: int, lasted_ns: float, known: int, known_ns: float) -> bool:
    """So many requests in so long are clearly more or fewer than known, and that is no chance."""
    rate, known_rate = count / lasted_ns, known / known_ns
    both = (count + known) / (lasted_ns + known_ns)
    chance = SIGMAS * sqrt(both * (1 / lasted_ns + 1 / known_ns))
    return abs(rate - known_rate) > max(LOAD_CHANGE * known_rate, chance)


def percentile_ns(durations_ns: Sequence[int], part: float) -> int:
    """The least of them that so great a part does not exceed (nearest rank); 0 of none.

    Of fewer than 100 the 99th percentile is the longest.
    """
    return percentile_of(sorted(durations_ns), part)


def percentile_of(sorted_ns: Sequence[int], part: float) -> int:
    """The same of durations that are in order."""
    return sorted_ns[max(0, ceil(part * len(sorted_ns)) - 1)] if sorted_ns else 0
