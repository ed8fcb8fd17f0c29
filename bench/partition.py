"""Jobs on parts of a GPU: accuracy of scaling curves, cost of sets of SMs, gain by the planner."""

from __future__ import annotations

from typing import Any

from bench.partition_launch import measure as launch
from bench.partition_mixes import measure as mixes
from bench.partition_scaling import measure as scaling
from bench.partition_sets import measure as sets
from bench.parts import Parts, measured

PARTS: Parts = {
    "sets": sets,
    "launch": launch,
    "scaling": scaling,
    "mixes": mixes,
}


def run() -> dict[str, Any]:
    """Measure every part."""
    return measured("partition", PARTS)
