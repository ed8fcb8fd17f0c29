"""The headline table: what each way of sharing a GPU achieves, and what it costs. Pure functions.

It joins the figures of three parts of `make gpu`: `colocation` (the ways), `workloads` (what Tandem
adds to launches, and the throughput it keeps) and `swap` (how close moved memory comes to the
link's rate). Figures that no part has are left empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.gpu.harness.beliefs import answer

Figures = Mapping[str, Any]

WAYS = {
    "alone": "alone",
    "unmanaged": "unmanaged",
    "priorities": "stream priorities",
    "mps": "MPS",
    "mps_priorities": "MPS, client priorities",
    "tandem": "Tandem",
    "tandem_mps": "Tandem, under MPS",
}
COLUMNS = (
    "way",
    "mode",
    "server p99 / alone",
    "trainers kept",
    "share of idle used",
    "throughput kept alone",
    "added to a launch",
    "moved memory / pinned copies",
)
WORKLOADS = ("eager", "vision", "language", "graph", "compiled")  # those judged by throughput
LAUNCH = {"median_ns": "median", "p99_ns": "p99"}
MOVES = ("swap.out.vs_pinned", "swap.in.vs_pinned")


def headline(merged: Figures) -> list[str]:
    """Lines of a Markdown table with a row per way; none if `colocation` has not run."""
    found = merged.get("colocation", {})
    if "scenarios" not in found:
        return []
    rows = [_row(way, merged) for way in WAYS if way in found["scenarios"]]
    missing = [
        f"\n{WAYS[way]}: not measured, {why}" for way, why in found.get("failed_arms", {}).items()
    ]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + missing


def _row(way: str, merged: Figures) -> list[str]:
    found = merged["colocation"]
    ratios = [
        answer(found, f"ratios.{name}.{way}")
        for name in ("server_p99_vs_alone", "trainers_vs_alone", "trainers_share_of_idle")
    ]
    mode = answer(found, f"modes.{way}") or found["device"]["mode"]
    own = [_kept(merged), _added(merged), _moved(merged)] if way == "tandem" else [""] * 3
    return [WAYS[way], str(mode), *(_number(ratio) for ratio in ratios), *own]


def _kept(merged: Figures) -> str:
    """The lowest throughput ratio of the programs that run alone under Tandem, and its program."""
    ratios = {name: answer(merged, f"workloads.rows.{name}.ratio") for name in WORKLOADS}
    measured = {name: float(r) for name, r in ratios.items() if isinstance(r, int | float)}
    if not measured:
        return ""
    least = min(measured, key=lambda name: measured[name])
    return f"{measured[least]:.3f} ({least}, least of {len(measured)})"


def _added(merged: Figures) -> str:
    """Host time that Tandem adds to a launch, beside the time of a bare launch, in ns."""
    launch = merged.get("workloads", {}).get("launch", {})
    told = []
    for name, words in LAUNCH.items():
        added = answer(launch, f"managed.added_{name}")
        bare = answer(launch, f"bare.{name}")
        if isinstance(added, int | float) and isinstance(bare, int | float):
            told.append(f"{words} {added:.0f} to {bare:.0f} ns")
    return ", ".join(told)


def _moved(merged: Figures) -> str:
    out, back = (answer(merged, path) for path in MOVES)
    if out is None or back is None:
        return ""
    return f"{_number(out)} out, {_number(back)} in"


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""
