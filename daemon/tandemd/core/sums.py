"""Sums of figures that processes claim about themselves.

Every figure is at most MOST, whatever the process says. Sums are capped there as well, because
receivers (protocol, shared pages, arrays) have no wider word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST = 2**63 - 1


def total(figures: Iterable[int]) -> int:
    """The sum, at most MOST."""
    return min(sum(figures), MOST)


def totals(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The capped sum of each column; all rows are equally long."""
    return tuple(map(total, zip(*rows, strict=True)))
