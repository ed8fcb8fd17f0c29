"""Names, merges and shows the results of the parts.

`results label [--dry]` prints <date>-<gpu>; `results merge PARTS FILE` writes one file and a table.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tandem.demo.place import probe

Figures = Mapping[str, Any]


def main() -> int:
    """Do what the first argument says."""
    if sys.argv[1] == "label":
        print(label(dry="--dry" in sys.argv))
        return 0
    merge(Path(sys.argv[2]), Path(sys.argv[3]))
    return 0


def label(*, dry: bool) -> str:
    """Date and device, as a file name; ends the program where a GPU is wanted and missing."""
    if dry:
        device = "dry-run"
    else:
        found = probe(os.environ)
        if found is None:
            sys.exit("error: no NVIDIA GPU here; DRY=1 tries the plumbing on the software GPU")
        device = re.sub(r"[^a-z0-9]+", "-", str(found["name"]).lower()).strip("-")
    return f"{datetime.now(UTC):%Y-%m-%d}-{device}"


def merge(parts: Path, output: Path) -> None:
    """One object with a key per part; a failed part says so beside what it had written."""
    merged: dict[str, Any] = {}
    for path in sorted(parts.glob("*.json")):
        merged[path.stem] = json.loads(path.read_text())
    for path in sorted(parts.glob("*.failed")):
        merged.setdefault(path.stem, {}).update(json.loads(path.read_text()))
    output.write_text(json.dumps(merged, indent=1) + "\n")
    for name, figures in merged.items():
        print(f"{name}")
        _show(figures, depth=1)
    print(f"results: {output}")


def _show(figures: Figures, *, depth: int) -> None:
    for name, value in figures.items():
        if isinstance(value, dict):
            print("  " * depth + name)
            _show(value, depth=depth + 1)
        elif not isinstance(value, list):
            print("  " * depth + f"{name:<32} {value}")


if __name__ == "__main__":
    sys.exit(main())
