"""Shows figures of several things with the same names as a table for people. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEAST_ROWS = 3
NOTHING = "not run"  # a cell without a figure
WIDEST = 40  # characters of a cell; only the file has longer ones in full


def is_table(figures: object) -> bool:
    """Whether the figures are rows: flat objects, most of which have most of the names."""
    if not isinstance(figures, Mapping) or len(figures) < LEAST_ROWS:
        return False
    rows = list(figures.values())
    if not all(isinstance(row, Mapping) and row and _is_flat(row) for row in rows):
        return False
    cells = sum(len(row) for row in rows)
    return 2 * cells >= len(rows) * len(_names(figures))


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Format the rows, a line each, below a line of names."""
    names = _names(rows)
    lines = [["", *names]]
    lines += [[row, *(_cell(rows[row].get(name)) for name in names)] for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(names) + 1)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _names(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows.values() for name in row))


def _is_flat(row: Mapping[str, Any]) -> bool:
    return not any(isinstance(value, Mapping | list) for value in row.values())


def _cell(value: object) -> str:
    text = "" if value is None else "-" if value == NOTHING else str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 2] + ".."
