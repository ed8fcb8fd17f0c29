"""What compiled files need from the machine and which symbols they export, according to readelf."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

Version = tuple[int, ...]
# Part of glibc itself, so present wherever glibc is.
GLIBC = {"libc", "libdl", "libm", "libpthread", "librt", "ld-linux-x86-64", "ld-linux-aarch64"}
# The last two are names of symbol versions, which readelf lists as exported symbols, too.
SHOWN = re.compile(r"(?:cu[A-Z]|nvml[A-Z]|softgpu_|tandem_|PyInit_)\w*|dlsym|GLIBC_[\d.]+|TANDEM")
ELF = b"\x7fELF"


def find(folder: Path) -> list[Path]:
    """Find all compiled files below the folder, programs and libraries."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_compiled(path)]


def complaints(file: Path, glibc: Version) -> list[str]:
    """List why the file would not run with a glibc of that version, or would disturb other code."""
    found = []
    if foreign := libraries(file) - GLIBC:
        found.append(f"needs {', '.join(sorted(foreign))}, which may be missing or another one")
    if newest(file) > glibc:
        found.append(f"needs glibc {text(newest(file))}, and {text(glibc)} was to do")
    if others := strangers(file):
        found.append(f"shows {len(others)} names that are not ours, such as {min(others)}")
    return found


def libraries(file: Path) -> set[str]:
    """The libraries that it is linked with, without version: libc, libstdc++."""
    return set(re.findall(r"\(NEEDED\).*\[([^\]]+?)\.so", _read("-d", file)))


def newest(file: Path) -> Version:
    """The newest version of glibc that it requires; (0,) if it requires none."""
    asked_for = _read("-V", file).partition("version_r")[2]
    return max((version(v) for v in re.findall(r"Name: GLIBC_([\d.]+)", asked_for)), default=(0,))


def strangers(file: Path) -> set[str]:
    """Exported names that are not ours; other files in a process could bind to them."""
    rows = [line.split() for line in _read("--dyn-syms", file).splitlines()]
    names = (row[7] for row in rows if len(row) > 7 and row[0][0].isdigit() and row[6] != "UND")
    return {name for name in names if not SHOWN.fullmatch(name.partition("@")[0])}


def version(words: str) -> Version:
    """Parse a dotted version."""
    return tuple(map(int, words.split(".")))


def text(number: Version) -> str:
    """Write a version with dots."""
    return ".".join(map(str, number))


def _is_compiled(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(ELF)) == ELF


def _read(what: str, file: Path) -> str:
    command = ["readelf", "-W", what, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
