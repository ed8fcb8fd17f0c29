"""Durations as people say them."""

from __future__ import annotations

from collections.abc import Sequence

_SPANS = ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"))


def span(duration_ns: float) -> str:
    """`340 ms`, `12 s`, `5 min`, `3.5 h`."""
    small = f"{duration_ns / 1e6:.3g} ms" if duration_ns >= 1e6 else f"{duration_ns / 1e3:.3g} us"
    return _largest(duration_ns, _SPANS) or small


def _largest(value: float, units: Sequence[tuple[int, str]]) -> str:
    for unit, name in units:
        if value >= unit:
            number = value / unit
            return f"{number:.0f} {name}" if number >= 10 else f"{number:.2g} {name}"
    return ""
