"""Reads cuda.h and cudaTypedefs.h; writes what must agree with them.

    generate_table.py --cuda-include DIR --out build/generated
    generate_table.py --cuda-include DIR --write-api csrc/api

Into the --out folder (a file is only touched when its text changed):

- cu_versions.inc: CU_VERSION(base, exported_symbol, since_version, per_thread), the answer to
  cuGetProcAddress, sorted by base, then version.
- softgpu_names.inc: SOFTGPU_NAME(name), every exported name, sorted; from it the software driver
  makes one weak stub each, which an implementation of that name replaces at link time.
- softgpu_per_thread.inc: the bodies of the _ptsz and _ptds names, which only switch the meaning of
  the default stream and call the plain name.
- softgpu_VERSION.map: what a driver of that CUDA version exports (ninja_build.OLD_DRIVERS).

How names meet versions: cuda.h exports cuCtxCreate, _v2, _v3, _v4; cudaTypedefs.h has
PFN_cuCtxCreate_v2000, _v3020, _v11040, _v12050. Both lists sorted give the pairs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

# Exported by every driver, declared in cudaProfiler.h, which the runtime package does not carry.
PROFILER = ("cuProfilerStart", "cuProfilerStop")
PROFILER_VERSION = 4000  # as NVIDIA's driver answers; cudaTypedefs.h does not have them
FIRST_VERSION = 2000  # other names without a typedef have been there from the start
PROTOTYPE = re.compile(r"CUresult\s+(cu[A-Z]\w*)\s*\(([^;]*?)\)\s*;", re.S)
TYPEDEF = re.compile(r"PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)")
EXPORTED = re.compile(r"(cu\w+?)(?:_v(\d+))?(_ptsz|_ptds)?$")


@dataclass(frozen=True, kw_only=True, order=True)
class Name:
    """One exported function: its base name, revision (1 = no suffix) and stream flavour."""

    base: str
    per_thread: str
    revision: int
    symbol: str
    parameters: str


def main() -> None:
    """Parse the command line and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-include", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--write-api", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    include = arguments.cuda_include or _installed_include()
    if arguments.out:
        _generate(include, arguments.out)
    if arguments.write_api:
        names = exported_names(include)
        version = _header_version(include)
        path = arguments.write_api / f"{version // 1000}.{version % 1000 // 10}.txt"
        _write(path, "".join(f"{n.symbol}\n" for n in sorted(names, key=lambda n: n.symbol)))


def _installed_include() -> Path:
    return _ninja_build().cuda_include()


def _ninja_build() -> ModuleType:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import ninja_build

    return ninja_build


def _generate(include: Path, out: Path) -> None:
    """Write the three tables."""
    names = exported_names(include)
    typedefs = (include / "cudaTypedefs.h").read_text()
    rows = _versions(names, typedefs)
    _write(out / "cu_versions.inc", _answers(rows))
    for version in _ninja_build().OLD_DRIVERS:
        _write(out / f"softgpu_{version}.map", _exports(rows, version))
    _write(out / "softgpu_names.inc", "".join(f"SOFTGPU_NAME({n.symbol})\n" for n in names))
    _write(out / "softgpu_per_thread.inc", "".join(map(_per_thread_body, names)))


def exported_names(include: Path) -> list[Name]:
    """Every function that cuda.h declares for the library itself, sorted."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-E", "-P", "-x", "c++"]
    command += ["-D__CUDA_API_VERSION_INTERNAL", str(include / "cuda.h")]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [_name(symbol, parameters) for symbol, parameters in PROTOTYPE.findall(text)]
    found += [_name(symbol, "void") for symbol in PROFILER]
    return sorted({n.symbol: n for n in found}.values())


def _name(symbol: str, parameters: str) -> Name:
    match = EXPORTED.fullmatch(symbol)
    assert match, symbol
    base, revision, per_thread = match.groups()
    return Name(
        base=base,
        per_thread=per_thread or "",
        revision=int(revision or 1),
        symbol=symbol,
        parameters=" ".join(parameters.split()),
    )


def _versions(names: list[Name], typedefs: str) -> list[tuple[Name, int]]:
    """Pair the revisions of each base name with the versions its typedefs carry."""
    versions: dict[tuple[str, str], set[int]] = {(n, ""): {PROFILER_VERSION} for n in PROFILER}
    for base, version, per_thread in TYPEDEF.findall(typedefs):
        versions.setdefault((base, per_thread), set()).add(int(version))
    groups: dict[tuple[str, str], list[Name]] = {}
    for name in names:
        groups.setdefault((name.base, name.per_thread), []).append(name)
    rows = []
    for key, members in groups.items():
        since = sorted(versions.get(key, {FIRST_VERSION}))
        if len(since) != len(members):
            listed = ", ".join(n.symbol for n in members)
            sys.exit(f"error: {listed} do not match the versions {since} of cudaTypedefs.h")
        rows += [(n, v) for n, v in zip(members, since, strict=True)]
    return sorted(rows, key=lambda row: (row[0].base, row[1], row[0].per_thread))


def _answers(rows: list[tuple[Name, int]]) -> str:
    return "".join(
        f"CU_VERSION({n.base}, {n.symbol}, {v}, {int(bool(n.per_thread))})\n" for n, v in rows
    )


def _exports(rows: list[tuple[Name, int]], version: str) -> str:
    major, minor = map(int, version.split("."))
    names = [n.symbol for n, since in rows if since <= 1000 * major + 10 * minor]
    return "{ global: " + " ".join(f"{name};" for name in [*names, "softgpu_*"]) + " local: *; };\n"


def _per_thread_body(name: Name) -> str:
    if not name.per_thread:
        return ""
    plain = name.symbol.removesuffix(name.per_thread)
    arguments = ", ".join(
        re.findall(r"(\w+)\s*(?:\[\d*\])?$", p)[0] for p in name.parameters.split(",")
    )
    return f"SOFTGPU_PER_THREAD({plain}, {name.symbol}, ({name.parameters}), ({arguments}))\n"


def _header_version(include: Path) -> int:
    match = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", (include / "cuda.h").read_text())
    if not match:
        sys.exit(f"error: no CUDA_VERSION in {include / 'cuda.h'}")
    return int(match.group(1))


def _write(path: Path, text: str) -> None:
    """Write only a changed text: ninja goes by modification times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    main()
