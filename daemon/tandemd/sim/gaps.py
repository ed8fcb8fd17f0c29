"""What is learnt from the gaps in a process's work: two histograms, as in the native parts.

`Lingers` matches the shim's (csrc/core/linger.cpp), `Durations` that of the daemon's poller
(csrc/core/dag/durations.cpp), down to the bin, because their answers change who computes.
"""

from __future__ import annotations

SHORTEST_NS = 50_000  # GapFinder::kShortestNs: nobody could use a shorter gap


class Lingers:
    """Finds how long presence should outlive activity to cover the gaps that are worth it."""

    _WORTH_NS = 3_000_000
    _ENOUGH, _HALVE_AT = 32, 512
    _BUCKETS, _UNIT_NS = 64, 1024

    def __init__(self) -> None:
        self._counts = [0] * self._BUCKETS
        self._total = 0

    def add(self, gap_ns: int) -> None:
        """Count a gap: the process was idle for so long, then submitted again."""
        self._counts[self._bucket_of(gap_ns)] += 1
        self._total += 1
        if self._total >= self._HALVE_AT:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)

    def linger_ns(self, base_ns: int, limit_ns: int) -> int:
        """Return the linger that gains most over the recent gaps; the base if that is not known."""
        if limit_ns <= base_ns or self._total < self._ENOUGH:
            return base_ns
        best_ns, best_gain, caught, spent_ns = base_ns, 0, 0, 0
        for bucket, count in enumerate(self._counts[:-1]):
            linger_ns = self._lower_ns(bucket + 1)
            if linger_ns > limit_ns:
                break
            caught += count
            spent_ns += count * linger_ns
            gain = caught * self._WORTH_NS - spent_ns - (self._total - caught) * linger_ns
            if linger_ns <= base_ns:
                best_gain = gain  # others have to gain more than the base
            elif gain > best_gain:
                best_ns, best_gain = linger_ns, gain
        return best_ns

    @classmethod
    def _bucket_of(cls, gap_ns: int) -> int:
        units = gap_ns // cls._UNIT_NS
        if units < 4:
            return 0
        octave = units.bit_length() - 1
        return min(cls._BUCKETS - 1, (octave - 2) * 4 + ((units >> (octave - 2)) & 3) + 1)

    @classmethod
    def _lower_ns(cls, bucket: int) -> int:
        if bucket == 0:
            return 0
        octave, quarter = divmod(bucket - 1, 4)
        return ((4 + quarter) << octave) * cls._UNIT_NS


class Durations:
    """Predicts how much longer something lasts, given how long it has lasted."""

    _ENOUGH, _FEWEST, _HALVE_AT = 32, 8, 256
    _PER_OCTAVE, _FIRST_OCTAVE, _BINS, _WEIGHT = 8, 15, 200, 256

    def __init__(self) -> None:
        self.added = 0
        self._weights = [0] * self._BINS

    def add(self, duration_ns: int) -> None:
        """Add one; every `_HALVE_AT` additions all weights are halved."""
        self._weights[self._bin_of(duration_ns)] += self._WEIGHT
        self.added += 1
        if self.added % self._HALVE_AT == 0:
            self._weights = [weight // 2 for weight in self._weights]

    def remaining_ns(self, part: float, so_far_ns: int) -> int:
        """Return the rest that a `part` of those lasting longer do not exceed; 0 = not known."""
        after = [self._weight_after(number, so_far_ns) for number in range(self._BINS)]
        if self.added < self._ENOUGH or sum(after) < self._FEWEST * self._WEIGHT:
            return 0
        left, until_ns = part * sum(after), so_far_ns
        for number, weight in enumerate(after):
            if left <= 0:
                break
            if weight:
                begin_ns = max(self._lower_ns(number), so_far_ns)
                width_ns = self._lower_ns(number + 1) - begin_ns
                until_ns = begin_ns + int(width_ns * min(1.0, left / weight))
                left -= weight
        return max(1, until_ns - so_far_ns)

    def _weight_after(self, number: int, so_far_ns: int) -> float:
        """Return the bin's weight beyond `so_far_ns`, taking durations as spread evenly over it."""
        begin_ns, end_ns = self._lower_ns(number), self._lower_ns(number + 1)
        if so_far_ns <= begin_ns:
            return self._weights[number]
        if so_far_ns >= end_ns:
            return 0
        return self._weights[number] * (end_ns - so_far_ns) / (end_ns - begin_ns)

    @classmethod
    def _bin_of(cls, duration_ns: int) -> int:
        if duration_ns < cls._lower_ns(0):
            return 0
        octave = duration_ns.bit_length() - 1
        within = (duration_ns >> (octave - 3)) & (cls._PER_OCTAVE - 1)
        return min(cls._BINS - 1, (octave - cls._FIRST_OCTAVE) * cls._PER_OCTAVE + within)

    @classmethod
    def _lower_ns(cls, number: int) -> int:
        octave, within = divmod(number, cls._PER_OCTAVE)
        return (cls._PER_OCTAVE + within) << (octave + cls._FIRST_OCTAVE - 3)


class Gaps:
    """The gaps of one process."""

    def __init__(self) -> None:
        self.lingers, self._durations = Lingers(), Durations()
        self._ended_ns: int | None = None  # end of its last work
        # The number of gaps, and the linger, that `_figures` are for.
        self._known: tuple[int, int] = (0, 0)
        self._figures = (0, 0)

    def work_ended(self, now_ns: int) -> None:
        """Note that all its submitted work has ended."""
        self._ended_ns = now_ns

    def work_began(self, now_ns: int) -> None:
        """Note that it submits again."""
        if self._ended_ns is not None and now_ns - self._ended_ns >= SHORTEST_NS:
            self._durations.add(now_ns - self._ended_ns)
        self._ended_ns = None

    def figures_ns(self, linger_ns: int) -> tuple[int, int]:
        """Return the median and 90th percentile of a gap's rest after presence; 0 = not known."""
        if self._known != (self._durations.added, linger_ns):
            self._known = self._durations.added, linger_ns
            half_ns = self._durations.remaining_ns(0.5, linger_ns)
            self._figures = half_ns, self._durations.remaining_ns(0.9, linger_ns)
        return self._figures
