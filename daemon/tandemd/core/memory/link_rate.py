"""How fast memory moves to the host and back, from the copies that jobs report."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

from tandemd.core.memory.homes import MIB
from tandemd.core.model import Usage

ENOUGH = 64 * MIB  # copied, to derive a rate
MOST_FACTOR = 128  # slower or faster than configured: more is not believed


def link_bytes_s(usages: Iterable[Usage], configured_bytes_s: float) -> float:
    """Return the link rate in bytes a second, from each process's slower direction.

    A process that copied nothing counts with `configured_bytes_s`. The figures are the processes'
    own. So each process counts as much as any other however much it reports, the median is taken,
    and a rate that no link can have is not believed.
    """
    rates = [_slower_bytes_s(usage) or configured_bytes_s for usage in usages]
    rate = median_low(rates) if rates else configured_bytes_s
    least, most = configured_bytes_s / MOST_FACTOR, configured_bytes_s * MOST_FACTOR
    return min(most, max(least, rate))


def _slower_bytes_s(usage: Usage) -> float | None:
    ways = zip(usage.moved_bytes, usage.moved_ns, strict=True)
    return min((size * 1e9 / ns for size, ns in ways if size >= ENOUGH and ns > 0), default=None)
