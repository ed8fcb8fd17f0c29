"""How fast memory goes to the host and comes back, as jobs say that they have copied it."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

from tandemd.core.memory.homes import MIB
from tandemd.core.model import Usage

ENOUGH = 64 * MIB  # that was copied, to tell a rate
MOST_FACTOR = 128  # by which a link is slower or faster than what is configured, if one believes it


def link_bytes_s(usages: Iterable[Usage], configured_bytes_s: float) -> float:
    """Bytes a second, of the processes' slower ways; of who copied nothing, `configured_bytes_s`.

    The figures are the processes' own. So each counts as much as any other, however much it says,
    the median is taken, and nothing is believed that no link can be.
    """
    rates = [_slower_bytes_s(usage) or configured_bytes_s for usage in usages]
    rate = median_low(rates) if rates else configured_bytes_s
    least, most = configured_bytes_s / MOST_FACTOR, configured_bytes_s * MOST_FACTOR
    return min(most, max(least, rate))


def _slower_bytes_s(usage: Usage) -> float | None:
    ways = zip(usage.moved_bytes, usage.moved_ns, strict=True)
    return min((size * 1e9 / ns for size, ns in ways if size >= ENOUGH and ns > 0), default=None)
