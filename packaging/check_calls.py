"""Check that shim/calls.def classifies every driver function, and that nothing passes by chance.

    python packaging/check_calls.py

Prints what is wrong; the exit code is 1 if anything is. Fast, as it only reads text files.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "shim"))

import call_table


def main() -> int:
    """Compare the table with every header in csrc/api; return the exit code."""
    try:
        rows = call_table.read(call_table.TABLE.read_text())
    except ValueError as exc:
        print(f"shim/calls.def: {exc}", file=sys.stderr)
        return 1
    problems = list(call_table.problems(rows, call_table.headers()))
    for problem in problems:
        print(f"shim/calls.def: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
