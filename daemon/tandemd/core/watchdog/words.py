"""Durations in words."""

from __future__ import annotations

_SPANS = ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"))


def span(duration_ns: float) -> str:
    """`340 ms`, `12 s`, `5 min`, `3.5 h`."""
    for unit_ns, name in _SPANS:
        if duration_ns >= unit_ns:
            number = duration_ns / unit_ns
            return f"{number:.0f} {name}" if number >= 10 else f"{number:.2g} {name}"
    return f"{duration_ns / 1e6:.3g} ms" if duration_ns >= 1e6 else f"{duration_ns / 1e3:.3g} us"
