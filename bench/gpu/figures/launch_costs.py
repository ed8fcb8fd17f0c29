"""What a launch costs the host, and what Tandem adds, from rounds of single launches. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.figures.workload_rows import BARE

FIGURES = ("median_ns", "p99_ns")
BEHIND = ("recorded_ns", "locked_ns")  # medians of bare launches, each followed by something

Rounds = Sequence[Mapping[str, Any]]  # each with the FIGURES of its launches


def launch_costs(rounds: Mapping[str, Rounds]) -> dict[str, Any]:
    """The medians over each mode's rounds, and those of what it adds to the bare round beside it.

    Every launch's time includes two readings of the host's clock; differences do not.
    """
    bare = rounds[BARE]
    found: dict[str, Any] = {mode: _medians(own) for mode, own in rounds.items()}
    for mode, own in rounds.items():
        if mode != BARE:
            found[mode] |= {f"added_{name}": _added(own, bare, name) for name in FIGURES}
    behind = {name: _median(bare, name) for name in BEHIND if all(name in one for one in bare)}
    for name, median_ns in behind.items():
        found[BARE][f"added_{name}"] = round(median_ns - found[BARE]["median_ns"], 1)
    return {**found, "stamp_ns": _median(bare, "stamp_ns")}


def _medians(rounds: Rounds) -> dict[str, float]:
    return {name: _median(rounds, name) for name in FIGURES}


def _median(rounds: Rounds, name: str) -> float:
    return round(statistics.median(float(one[name]) for one in rounds), 1)


def _added(rounds: Rounds, bare: Rounds, name: str) -> float:
    """Median of the differences within rounds, in which drift of the machine cancels out."""
    pairs = zip(rounds, bare, strict=True)
    return round(statistics.median(float(own[name] - base[name]) for own, base in pairs), 1)
