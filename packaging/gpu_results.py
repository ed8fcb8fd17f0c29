"""Finds what a GPU said: the files that `make gpu` leaves under bench/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


class Found(NamedTuple):
    """The figures of a part, in the newest file that has it."""

    path: Path
    figures: dict[str, Any]


def newest(part: str) -> Found | None:
    """None: no GPU ran it. Dry runs stand under other names."""
    for path in sorted(RESULTS.glob("20*.json"), reverse=True):
        if "dry-run" in path.name:
            continue
        parts = json.loads(path.read_text())
        if part in parts:
            return Found(path, parts[part])
    return None
