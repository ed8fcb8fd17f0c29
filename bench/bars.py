"""Compares figures with limits, prints them as a table, and reports progress on stderr."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

Bar = dict[str, Any]


def bar(value: float, limit: float, *, doubt: str = "") -> Bar:
    """One figure with its limit: ok if the figure is not above it and there is no doubt about it.

    `doubt` says why the figure cannot be trusted; such a bar is never ok.
    """
    if not doubt and not math.isfinite(value):
        doubt = "it could not be measured"
    shown = round(value, 4) if math.isfinite(value) else None
    found: Bar = {"value": shown, "limit": limit, "ok": not doubt and value <= limit}
    if doubt:
        found["reason"] = doubt
    return found


def smallest_median(rounds: Sequence[Sequence[float]]) -> float:
    """The smallest of the rounds' medians, which other activity on the machine disturbed least."""
    return min(statistics.median(values) for values in rounds)


def progress(text: str) -> None:
    """Print on stderr what is going on."""
    print(text, file=sys.stderr, flush=True)


def show(figures: Mapping[str, float], unit: str) -> None:
    """Print figures, one per line."""
    for name, value in figures.items():
        print(f"  {name:<28} {value:>14,.4g} {unit}".rstrip())


def show_bars(bars: Mapping[str, Bar]) -> None:
    """Print each bar with its limit and whether it holds."""
    for name, one in bars.items():
        verdict = "ok" if one["ok"] else one.get("reason", "OVER")
        print(f"  {name:<28} {one['value']!s:>14} of {one['limit']:<10} {verdict}")
