"""What device memory costs under the shim, and what sharing it gains."""

from __future__ import annotations

from typing import Any

from bench.memory_allocs import measure as allocs
from bench.memory_curves import measure as curves
from bench.memory_turns import measure as turns
from bench.parts import Parts, measured

PARTS: Parts = {
    "allocs": allocs,
    "curves": curves,
    "turns": turns,
}


def run() -> dict[str, Any]:
    """Measure every part."""
    return measured("memory", PARTS)
