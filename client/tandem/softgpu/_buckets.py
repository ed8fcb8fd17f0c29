"""Utilization over time in a fixed amount of memory."""

from __future__ import annotations

_COUNT = 1024
_FIRST_WIDTH_NS = 1_000


class Buckets:
    """Amounts over time; `add` spreads an amount evenly over an interval.

    Buckets begin at the first time added and are a microsecond wide at first. Whenever a time lies
    past the last bucket, all buckets become twice as wide.
    """

    def __init__(self, begin_ns: int | None = None) -> None:
        """`begin_ns` is the start of the first bucket; by default, the first time added."""
        self.width_ns = _FIRST_WIDTH_NS
        self.begin_ns = begin_ns
        self._amounts = [0.0] * _COUNT
        self._last = 0  # the highest bucket in use

    def add(self, start_ns: int, end_ns: int, amount_per_ns: float) -> None:
        """Add `amount_per_ns` for each nanosecond of the interval."""
        if self.begin_ns is None:
            self.begin_ns = start_ns
        # Rows come in the order of their ends, so some began before the first one: cut them there.
        start, end = max(0, start_ns - self.begin_ns), max(0, end_ns - self.begin_ns)
        while end > self.width_ns * _COUNT:
            self._widen()
        while start < end:
            bucket = start // self.width_ns
            stop = min(end, (bucket + 1) * self.width_ns)
            self._amounts[bucket] += (stop - start) * amount_per_ns
            self._last = max(self._last, bucket)
            start = stop

    def levels(self, width_ns: int | None = None) -> list[float]:
        """The mean of each used bucket, in amounts per nanosecond.

        `width_ns` merges buckets to that larger width, for comparison with wider ones.
        """
        if self.begin_ns is None:
            return []
        wide = max(1, (width_ns or 0) // self.width_ns)
        used = self._amounts[: self._last + 1]
        return [sum(used[i : i + wide]) / (wide * self.width_ns) for i in range(0, len(used), wide)]

    def _widen(self) -> None:
        pairs = zip(self._amounts[::2], self._amounts[1::2], strict=True)
        self._amounts = [a + b for a, b in pairs] + [0.0] * (_COUNT // 2)
        self.width_ns *= 2
        self._last //= 2
