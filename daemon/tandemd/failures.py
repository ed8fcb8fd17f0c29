"""Tells of what failed for one job while all others go on.

What fails every 10 ms would fill the log: of each kind one failure a minute is told, with its
traceback and how many there were since the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

QUIET_NS = 60_000_000_000

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Kind:
    told_ns: int
    untold: int = 0


@dataclass(slots=True)
class Failures:
    """For one thread; from several at once one failure may be told twice."""

    _kinds: dict[tuple[str, str], _Kind] = field(default_factory=dict)

    def tell(self, what: str, error: Exception, now_ns: int) -> None:
        """`what` failed with this error; `what` is one of few texts."""
        key = (what, type(error).__name__)
        kind = self._kinds.get(key)
        if kind is not None and now_ns - kind.told_ns < QUIET_NS:
            kind.untold += 1
            return
        more = {"before": kind.untold} if kind is not None and kind.untold else {}
        self._kinds[key] = _Kind(now_ns)
        log.error("something failed, continuing without it", what=what, exc_info=error, **more)
