"""Finds results measured on a GPU: the files that `make gpu` leaves under bench/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


class Found(NamedTuple):
    """The figures of a part, and the file they are from."""

    path: Path
    figures: dict[str, Any]


def newest(part: str) -> Found | None:
    """Find a part's newest results; None if no GPU has run it. Dry runs do not count."""
    for path in sorted(RESULTS.glob("20*.json"), reverse=True):
        if "dry-run" in path.name:
            continue
        parts = json.loads(path.read_text())
        if part in parts:
            return Found(path, parts[part])
    return None
