"""Writes which symbol each base name means in each CUDA version, from the table of calls.

    generate_versions.py --out build/generated

- shim_versions.inc: CU_VERSION(base, exported_symbol, since, per_thread), sorted by base, then
  version: what cuGetProcAddress answers. It has all lines of the table, not only those that the
  build's cuda.h declares: a driver newer than that header knows them, and returns another function.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import call_table
from generate_entries import write_if_changed

SYMBOL = re.compile(r"(cu\w+?)(?:_v(\d+))?(_ptsz|_ptds)?")


def main() -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-include", help="ignored: the table says it all")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    rows = call_table.read(call_table.TABLE.read_text())
    write_if_changed(arguments.out / "shim_versions.inc", versions(rows))


def versions(rows: list[call_table.Row]) -> str:
    """The text of shim_versions.inc."""
    found = []
    for row in rows:
        match = SYMBOL.fullmatch(row.symbol)
        assert match, row.symbol
        base, _, per_thread = match.groups()
        found.append((base, row.since, int(bool(per_thread)), row.symbol))
    return "".join(
        f"CU_VERSION({base}, {symbol}, {since}, {per_thread})\n"
        for base, since, per_thread, symbol in sorted(found)
    )


if __name__ == "__main__":
    main()
