"""Sums of figures that processes claim of themselves.

Each figure alone is at most MOST, whatever the process says; their sums are kept to that, too, for
whoever is told of them has no wider word: protocol, shared pages, arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST = 2**63 - 1


def total(figures: Iterable[int]) -> int:
    """Their sum, or MOST."""
    return min(sum(figures), MOST)


def totals(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The same of each column; all rows are equally long."""
    return tuple(map(total, zip(*rows, strict=True)))
