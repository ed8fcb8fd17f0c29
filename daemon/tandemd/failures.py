"""Logs failures that concern one job while all others go on.

Something that fails every 10 ms would flood the log. So of each kind of failure one a minute is
logged, with its traceback and the number of failures since the last logged one.
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
    """Rate-limits the log. For one thread; if several use it, a failure may be logged twice."""

    _kinds: dict[tuple[str, str], _Kind] = field(default_factory=dict)

    def tell(self, what: str, error: Exception, now_ns: int) -> None:
        """Log that `what` failed with this error; `what` must be one of a few fixed texts."""
        key = (what, type(error).__name__)
        kind = self._kinds.get(key)
        if kind is not None and now_ns - kind.told_ns < QUIET_NS:
            kind.untold += 1
            return
        more = {"before": kind.untold} if kind is not None and kind.untold else {}
        self._kinds[key] = _Kind(now_ns)
        log.error("something failed, continuing without it", what=what, exc_info=error, **more)
