"""Writes the shim's exported functions: those of calls.def, with their signatures from cuda.h.

    generate_entries.py --cuda-include DIR --out build/generated

- shim_calls.inc: CALL(symbol) for each call that is interposed.
- shim_entries.inc: SHIM_ENTRY(symbol, handler, (parameters), (arguments), how a trace shows them),
  expanded by entry.cpp.
- trace_calls.inc: the same for the readers of traces: every call, and marks, with the parameters,
  how each is recorded, and the enumerations in them. JSON in a C++ string.
- shim_signatures.json: symbol -> parameter types, for the tests' recording driver.

Everything comes from the build's header: calls that only another version of it declares are left
out, since nothing could be compiled for them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import call_table

PROTOTYPE = re.compile(r"CUresult\s+(cu[A-Z]\w*)\s*\(([^;()]*)\)\s*;")
PARAMETER = re.compile(r"^(.*?[\s*])(\w+)$", re.S)


def main() -> None:
    """Parse the command line and write all files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-include", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    try:
        table = call_table.read(call_table.TABLE.read_text())
    except ValueError as exc:
        sys.exit(f"error: {exc}")
    header = preprocessed(arguments.cuda_include)
    declared = prototypes(header)
    entries: list[str] = []
    signatures: dict[str, list[str]] = {}
    calls: list[Mapping[str, object]] = []
    for row in table:
        if not row.interposed or row.symbol not in declared:
            continue
        parameters = declared[row.symbol]
        typed = ", ".join(f"{kind} {name}" for kind, name in parameters)
        passed = ", ".join(name for _, name in parameters)
        shown = "".join(_shown(kind, name) for kind, name in parameters)
        entries.append(f"SHIM_ENTRY({row.symbol}, {row.handler}, ({typed}), ({passed}), {shown})")
        calls.append(_described(row.symbol, row.group, parameters))
        signatures[row.symbol] = [kind for kind, _ in parameters]
    write_if_changed(arguments.out / "shim_calls.inc", "".join(f"CALL({s})\n" for s in signatures))
    write_if_changed(arguments.out / "shim_entries.inc", "\n".join(entries) + "\n")
    write_if_changed(
        arguments.out / "shim_signatures.json", json.dumps(signatures, indent=1) + "\n"
    )
    calls.append(MARK)
    described = json.dumps({"calls": calls, "enums": _enumerations(header)}, separators=(",", ":"))
    write_if_changed(arguments.out / "trace_calls.inc", as_cpp_string(described))


# From tandem_mark.h. In a trace a mark looks like a call, so every reader of traces can show it.
MARK = {
    "name": "tandem_mark_v1",
    "class": "mark",
    "parameters": [
        {"name": "kind", "type": "int", "shape": "value"},
        {"name": "id", "type": "cuuint64_t", "shape": "value"},
        {"name": "value", "type": "cuuint64_t", "shape": "value"},
    ],
}

# Parameter type -> member of tracing::Arguments; all others are `value`.
SHAPES = {
    "CUdeviceptr *": "out",
    "CUdriverProcAddressQueryResult *": "out",
    "CUgraph *": "out",
    "const CUDA_MEMCPY2D *": "copy2d",
    "const CUDA_MEMCPY3D *": "copy3d",
    "const CUlaunchConfig *": "config",
    "const char *": "text",
    "size_t *": "out",
}
ENUMERATIONS = (
    "CUdriverProcAddressQueryResult",
    "CUmemorytype",
    "CUresult",
    "CUstreamCaptureMode",
)


def _shape(kind: str, name: str) -> str:
    if name == "kernelParams":
        return "kernel"
    return "out" if name == "pfn" else SHAPES.get(kind, "value")


def _shown(kind: str, name: str) -> str:
    shape = _shape(kind, name)
    return f".{shape}(f, {name})" if shape == "kernel" else f".{shape}({name})"


def _described(symbol: str, group: str, parameters: list[tuple[str, str]]) -> dict[str, object]:
    described = [{"name": n, "type": k, "shape": _shape(k, n)} for k, n in parameters]
    return {"name": symbol, "class": group, "parameters": described}


def _enumerations(header: str) -> dict[str, dict[str, str]]:
    """For each enumeration that a trace shows: number, as a JSON key, -> name."""
    found = {}
    for name in ENUMERATIONS:
        body = re.search(rf"typedef enum \w+ \{{([^}}]*)\}} {name};", header)
        if body is None:
            sys.exit(f"error: cuda.h does not declare the enumeration '{name}'")
        members = re.findall(r"(\w+)\s*=\s*(0[xX][0-9a-fA-F]+|\d+)", body[1])
        found[name] = {str(int(number, 0)): member for member, number in reversed(members)}
    return found


def preprocessed(include: Path) -> str:
    """cuda.h as the compiler sees it, with every name that the library exports."""
    command = [
        *shlex.split(os.environ.get("CXX", "g++")),
        "-E",
        "-P",
        "-xc++",
        "-D__CUDA_API_VERSION_INTERNAL",
    ]
    source = "#include <cuda.h>\n"
    return subprocess.run(
        [*command, "-isystem", str(include), "-"],
        input=source,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def prototypes(header: str) -> dict[str, list[tuple[str, str]]]:
    """Every function of cuda.h: name -> (type, name) of each parameter."""
    return {
        name: [_parameter(p) for p in parameters.split(",") if p.strip() not in ("", "void")]
        for name, parameters in PROTOTYPE.findall(header)
    }


def _parameter(text: str) -> tuple[str, str]:
    match = PARAMETER.match(text.strip())
    if match is None:
        sys.exit(f"error: cannot read the parameter '{text.strip()}' of cuda.h")
    return " ".join(match[1].split()), match[2]


def as_cpp_string(text: str) -> str:
    """A C++ string literal in pieces: the standard guarantees at most 64 KiB for one."""
    pieces = [text[i : i + 8000] for i in range(0, len(text), 8000)]
    return "\n".join(f'R"json({piece})json"' for piece in pieces) + "\n"


def write_if_changed(path: Path, text: str) -> None:
    """Write the file only when its text has changed, to avoid needless recompilation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    main()
