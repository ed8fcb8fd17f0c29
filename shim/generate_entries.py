"""Writes the exported functions of calls.def with their signatures from cuda.h.

    generate_entries.py --cuda-include DIR --out build/generated

- shim_entries.inc: SHIM_ENTRY(symbol, handler, (parameters), (arguments)), expanded by entry.cpp.
- shim_signatures.json: symbol -> parameter types, for the tests' recording driver.

A symbol of calls.def that the header lacks is an error: the table and the header must agree.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROW = re.compile(r"^CALL\((\w+), (\w+), (\w+), \"([^\"]*)\"\)$", re.M)
PROTOTYPE = re.compile(r"CUresult\s+(cu[A-Z]\w*)\s*\(([^;()]*)\)\s*;")
PARAMETER = re.compile(r"^(.*?[\s*])(\w+)$", re.S)


def main() -> None:
    """Parse the command line and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-include", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    table = Path(__file__).with_name("calls.def").read_text()
    prototypes = _prototypes(arguments.cuda_include)
    entries, signatures = [], {}
    for symbol, _, handler, _ in ROW.findall(table):
        if symbol not in prototypes:
            sys.exit(f"error: calls.def names '{symbol}', which cuda.h does not declare")
        parameters = prototypes[symbol]
        declared = ", ".join(f"{kind} {name}" for kind, name in parameters)
        passed = ", ".join(name for _, name in parameters)
        entries.append(f"SHIM_ENTRY({symbol}, {handler}, ({declared}), ({passed}))")
        signatures[symbol] = [kind for kind, _ in parameters]
    _write(arguments.out / "shim_entries.inc", "\n".join(entries) + "\n")
    _write(arguments.out / "shim_signatures.json", json.dumps(signatures, indent=1) + "\n")


def _prototypes(include: Path) -> dict[str, list[tuple[str, str]]]:
    """Every function of cuda.h: name -> (type, name) of each parameter."""
    command = [os.environ.get("CXX", "g++"), "-E", "-P", "-xc++", "-D__CUDA_API_VERSION_INTERNAL"]
    source = "#include <cuda.h>\n"
    text = subprocess.run(
        [*command, "-isystem", str(include), "-"],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {
        name: [_parameter(p) for p in parameters.split(",") if p.strip() not in ("", "void")]
        for name, parameters in PROTOTYPE.findall(text)
    }


def _parameter(text: str) -> tuple[str, str]:
    match = PARAMETER.match(text.strip())
    if match is None:
        sys.exit(f"error: cannot read the parameter '{text.strip()}' of cuda.h")
    return " ".join(match[1].split()), match[2]


def _write(path: Path, text: str) -> None:
    """Touch the file only when its text changed, so that nothing is compiled again for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    main()
