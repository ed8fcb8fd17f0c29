"""Writes how much of each cuda.h the table of calls covers, for `tandem doctor --coverage`.

    generate_coverage.py --cuda-include DIR --out build/generated

- coverage.inc: JSON in a C++ string. Its names are those of `tandem doctor --coverage --json`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import call_table
from generate_entries import as_cpp_string, preprocessed, prototypes, write_if_changed


def main() -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-include", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    rows = call_table.read(call_table.TABLE.read_text())
    version = _version(arguments.cuda_include / "cuda.h")
    built = sorted(prototypes(preprocessed(arguments.cuda_include)))
    # Includes the build's header even if csrc/api does not know its version yet.
    declared = {version: built} | call_table.headers()
    covered = call_table.coverage(rows, declared, version, built)
    write_if_changed(arguments.out / "coverage.inc", as_cpp_string(json.dumps(covered)))


def _version(header: Path) -> str:
    found = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", header.read_text())
    if found is None:
        sys.exit(f"error: no CUDA_VERSION in {header}")
    return call_table.version_name(int(found[1]))


if __name__ == "__main__":
    main()
