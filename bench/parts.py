"""A bench of several parts, each with its own aspect and its own bars.

A part is a function that measures and returns its figures. Its bars are under `bars`; the result
prefixes them with the part's name. A part that fails does not affect the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from bench.bars import Bar, bar, progress, show_bars
from bench.stage import FAILURES, OutOfTimeError

Parts = Mapping[str, Callable[[], dict[str, Any]]]


def measured(bench: str, parts: Parts) -> dict[str, Any]:
    """Measure every part, print a table, return the result.

    A part that could not be measured has `error` in place of figures, and a single bar, which
    fails. Once the time is up, this applies to all remaining parts.
    """
    found: dict[str, dict[str, Any]] = {}
    bars: dict[str, Bar] = {}
    late: Exception | None = None
    for part, measure in parts.items():
        figures, failure = ({}, late) if late else _tried(measure)
        if failure is not None:
            figures = _failed(part, failure)
            late = failure if isinstance(failure, OutOfTimeError) else None
        bars |= {f"{part}_{name}": one for name, one in figures.pop("bars").items()}
        found[part] = figures
    show_bars(bars)
    return {"bench": bench, **found, "bars": bars}


def _tried(measure: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], Exception | None]:
    try:
        return measure(), None
    except FAILURES as error:
        return {}, error


def _failed(part: str, failure: Exception) -> dict[str, Any]:
    progress(f"{part}: not measured: {failure}")
    failed = bar(math.nan, 0, doubt=f"not measured: {failure}")
    return {"error": str(failure), "bars": {"measured": failed}}
