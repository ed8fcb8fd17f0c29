"""What device memory costs under the shim: one part an aspect, each with its own bars.

A part is a function in PARTS that measures and returns its figures; its bars are under `bars`, and
get the part's name in front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.bars import show_bars
from bench.memory_allocs import measure as allocs
from bench.memory_curves import measure as curves
from bench.memory_turns import measure as turns

PARTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "allocs": allocs,
    "curves": curves,
    "turns": turns,
}


def run() -> dict[str, Any]:
    """Measure every part, print a table, return the result.

    Raises:
        NotMeasuredError: a program failed.
    """
    found = {name: measure() for name, measure in PARTS.items()}
    bars = {
        f"{part}_{name}": bar
        for part, figures in found.items()
        for name, bar in figures.pop("bars").items()
    }
    show_bars(bars)
    return {"bench": "memory", **found, "bars": bars}
