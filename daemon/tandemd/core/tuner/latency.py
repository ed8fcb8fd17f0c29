"""How long the requests of a job take: the newest ones, and their percentiles.

A request is what a job marks as one (`tandem.slo`); else what lies between two of its step marks;
else a burst of work, from the first thing asked of the idle GPU until all of it has ended. All
three include waiting for a turn (csrc/core/dag/requests.h).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import repeat
from math import ceil, inf, sqrt

SPAN_NS = 30_000_000_000  # older requests are dropped
MOST = 4096
ENOUGH = 20  # requests within a short time; fewer make no rate
LOAD_CHANGE = 0.25  # a change of the rate by this much is another load,
SIGMAS = 4  # if chance does not explain it: requests count as independent
NO_CHANCE = 5  # with this many expected by chance, there is none once in 150 times (Poisson)


class RequestKind(IntEnum):
    """How requests are told apart; values are those of dag::RequestKind."""

    BURST = 0
    STEP = 1
    MARKED = 2


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How long a request takes that hardly waits, and on how many SMs (pauses.py).

    For a job without requests it is the GPU time of an iteration.
    """

    quick_ns: int
    sms: int
    is_of_requests: bool = False


@dataclass(slots=True)
class Latency:
    """The newest requests of one job: at most MOST, none older than SPAN_NS.

    They are also kept sorted by duration, because decisions about turns ask for percentiles.
    """

    kind: RequestKind = RequestKind.BURST
    moved_ns: int = 0  # since when the job has been on its current SMs
    # When each ended, how long it took, and for how much of that its process was held.
    _ended: deque[tuple[int, int, int]] = field(default_factory=deque)
    _sorted_ns: list[int] = field(default_factory=list)
    _overlapped_ns: int = -SPAN_NS  # when two were last under way at once

    def add(
        self,
        durations_ns: Collection[int],
        now_ns: int,
        at_once: int = 0,
        held_ns: Collection[int] = (),
    ) -> None:
        """Take in requests that just ended, and the most that were under way at once meanwhile.

        `held_ns`: for how long the process was held during each; empty: never.
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
        """Drop requests that are too old."""
        while self._ended and now_ns - self._ended[0][0] > SPAN_NS:
            self._drop()

    def restart(self, kind: RequestKind) -> None:
        """Start anew, because requests are told apart in another way and do not compare."""
        self.kind = kind
        self._ended.clear()
        self._sorted_ns.clear()
        self._overlapped_ns = -SPAN_NS

    @property
    def count(self) -> int:
        """How many requests the figures are from."""
        return len(self._ended)

    @property
    def p99_ns(self) -> int:
        """99 of 100 requests took no longer; 0 = there was none."""
        return percentile_of(self._sorted_ns, 0.99)

    @property
    def quick_ns(self) -> int:
        """A tenth of the requests took no longer: roughly the time without a wait; 0 = none."""
        return percentile_of(self._sorted_ns, 0.1)

    def since_moved_ns(self) -> list[int]:
        """Return the durations of requests that began on the job's current SMs."""
        return [took_ns for end_ns, took_ns, _ in self._ended if end_ns - took_ns >= self.moved_ns]

    def needed_since_moved_ns(self) -> list[int]:
        """Return the same less the time the process was held."""
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
        """Tell whether each begins only when the one before has ended, as far as one process shows.

        Marked requests may overlap. That they do not counts as known once many would have
        overlapped by chance.
        """
        if self.kind is not RequestKind.MARKED:
            return True
        overlaps = self.rate * sum(self._sorted_ns) / 1e9  # overlaps expected by chance
        return now_ns - self._overlapped_ns > SPAN_NS and overlaps > NO_CHANCE

    def steady_rate(self, span_ns: int, now_ns: int) -> tuple[float, int]:
        """Return the rate of the newest requests, and from how many it is; (0, 0) = not known.

        It covers at least the last `span_ns`, and doubles that as long as the load before was the
        same (as ADWIN does; Bifet and Gavalda, SDM 2007): it is the more certain the longer the
        load is steady, and follows when that changes. With too few requests there, it covers all.
        For a job that no longer asks for anything, it is the rate when it last did.
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
        """Drop the oldest."""
        _, duration_ns, _ = self._ended.popleft()
        del self._sorted_ns[bisect_left(self._sorted_ns, duration_ns)]


def is_another_load(count: int, lasted_ns: float, known: int, known_ns: float) -> bool:
    """Tell whether the rate clearly differs from the known one, beyond what chance explains."""
    rate, known_rate = count / lasted_ns, known / known_ns
    both = (count + known) / (lasted_ns + known_ns)
    chance = SIGMAS * sqrt(both * (1 / lasted_ns + 1 / known_ns))
    return abs(rate - known_rate) > max(LOAD_CHANGE * known_rate, chance)


def percentile_ns(durations_ns: Sequence[int], part: float) -> int:
    """Return the least duration that a fraction `part` do not exceed (nearest rank); 0 of none.

    With fewer than 100 the 99th percentile is the longest.
    """
    return percentile_of(sorted(durations_ns), part)


def percentile_of(sorted_ns: Sequence[int], part: float) -> int:
    """Return the same for durations that are sorted."""
    return sorted_ns[max(0, ceil(part * len(sorted_ns)) - 1)] if sorted_ns else 0
