"""How long many processes need to attach, all at once."""

from __future__ import annotations

from typing import Any

from bench.bars import bar, progress, show, show_bars
from bench.crowd import crowd
from bench.stage import stage

COUNT = 1000
WALL_LIMIT_S = 2.0


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    progress(f"attaching {COUNT} processes")
    with stage() as place, place.daemon(), crowd(place, COUNT) as result:
        figures = {
            "processes": result.attached,
            "lost": COUNT - result.attached,  # includes those that could not be forked
            "wall_s": round(result.wall_ns / 1e9, 4),
            "each_us": round(result.wall_ns / 1e3 / max(result.attached, 1), 2),
        }
    doubt = f"only {figures['processes']} attached" if figures["lost"] else ""
    bars = {
        "wall_s": bar(figures["wall_s"], WALL_LIMIT_S, doubt=doubt),
        "lost": bar(figures["lost"], 0),
    }
    print(f"attach, {COUNT} processes at once")
    show(figures, "")
    show_bars(bars)
    return {"bench": "attach", **figures, "bars": bars}
