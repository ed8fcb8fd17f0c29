"""GPU time of each job and GPU over the last second, from totals sampled now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

SPAN_NS = 1_000_000_000
STEP_NS = 100_000_000


class Recent:
    """Turns totals into shares. Keys are anything hashable."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, dict[object, int]]] = deque()

    def is_due(self, now_ns: int) -> bool:
        """Tell whether it is time for `look`."""
        return not self._looks or now_ns - self._looks[-1][0] >= STEP_NS

    def look(self, totals_ns: Mapping[object, int], now_ns: int) -> None:
        """Take in the totals so far."""
        self._looks.append((now_ns, dict(totals_ns)))
        while len(self._looks) > 2 and self._looks[1][0] <= now_ns - SPAN_NS:
            self._looks.popleft()

    def share(self, key: object) -> float:
        """Return GPU time over real time since about a second ago; 0 for an unknown key."""
        if len(self._looks) < 2:
            return 0.0
        (start_ns, before), (end_ns, after) = self._looks[0], self._looks[-1]
        gained_ns = after.get(key, 0) - before.get(key, 0)
        return min(1.0, max(0.0, gained_ns / max(1, end_ns - start_ns)))
