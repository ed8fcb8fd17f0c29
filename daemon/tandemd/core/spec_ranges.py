"""Allowed values of JobSpec fields, whoever sets them.

They go into shared pages and messages with 32- and 64-bit words, and some are added to the time.
"""

from __future__ import annotations

from tandemd.core.model import NEVER_IDLE_NS, NO_LIMIT, JobSpec
from tandemd.core.space.asked import MODES

MOST_WAIT_NS = (2**16 - 1) * 10**9  # the maximum that wire::Request can carry
MOST_NS = NEVER_IDLE_NS  # for all other durations: 100 years

_BYTES = range(NO_LIMIT + 1)
_PERCENT = range(100 + 1)
_RANGES = {
    "memory_bytes": _BYTES,
    "memory_percent": _PERCENT,
    "memory_min_bytes": _BYTES,
    "persistent_bytes": _BYTES,
    "ephemeral_bytes": _BYTES,
    "wait_memory_ns": range(MOST_WAIT_NS + 1),
    "sm_percent": _PERCENT,
    "sm_count": range(2**32),
    "slo_p99_ns": range(MOST_NS + 1),
    "idle_release_ns": range(MOST_NS + 1),
    "isolation": ("", *MODES),
}


def objection(spec: JobSpec) -> str | None:
    """Name a field that is out of range; None: all are in range."""
    for name, allowed in _RANGES.items():
        if (value := getattr(spec, name)) not in allowed:
            return f"{name} {value!r} is out of range"
    return None
