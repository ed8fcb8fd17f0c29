"""Limits log lines about events that any user can cause at will."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 10.0
MOST_UIDS = 1024  # uids told apart


class Seldom:
    """Decides for each user whether one more line is logged. Any thread."""

    def __init__(self, lines: int = 10, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """`lines` per user may be logged in EVERY_S."""
        self._lines, self._now_s = lines, now_s
        self._since_s = now_s()
        self._told: dict[int, int] = {}

    def is_time(self, uid: int) -> bool:
        """Tell whether one more line about the uid may be logged now."""
        now_s = self._now_s()
        if now_s - self._since_s >= EVERY_S or len(self._told) >= MOST_UIDS:
            self._since_s = now_s
            self._told.clear()
        told = self._told.get(uid, 0)
        self._told[uid] = told + 1
        return told < self._lines
