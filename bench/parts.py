"""A bench of several parts, one aspect each, with bars of its own.

A part is a function that measures and returns its figures; its bars are under `bars`, and get the
part's name in front. One that fails takes nothing from the others.
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

    A part that could not be measured has `error` in place of figures and one bar, which fails; once
    the time is over so have all that are left.
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
