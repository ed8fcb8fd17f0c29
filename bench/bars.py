"""Figures against limits, and the table they are shown in."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def bar(value: float, limit: float) -> dict[str, float | bool]:
    """One figure with its limit; good when it is not above it."""
    return {"value": round(value, 4), "limit": limit, "ok": value <= limit}


def smallest_median(rounds: Sequence[Sequence[float]]) -> float:
    """The quietest round's median: the figure least touched by whatever else the machine does."""
    return min(statistics.median(values) for values in rounds)


def show(figures: Mapping[str, float], unit: str) -> None:
    """Print figures one a line."""
    for name, value in figures.items():
        print(f"  {name:<28} {value:>12.1f} {unit}")


def show_bars(bars: Mapping[str, Mapping[str, float | bool]]) -> None:
    """Print each bar with its limit and whether it holds."""
    for name, one in bars.items():
        verdict = "ok" if one["ok"] else "OVER"
        print(f"  {name:<28} {one['value']:>12} of {one['limit']:<10} {verdict}")
