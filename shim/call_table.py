"""Reads and checks calls.def, the table of every driver function, and reports what it covers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("calls.def")
HEADERS = Path(__file__).resolve().parent.parent / "csrc" / "api"

WORK = ("launch", "graph", "copy", "memset", "memop", "host")
MEMORY = ("alloc", "free", "pool", "vmm", "array", "ipc", "import")
OTHER = ("sync", "query", "event", "capture", "context", "module", "green", "checkpoint", "pass")
CLASSES = (*WORK, *MEMORY, *OTHER)

PASS = "pass"  # not interposed
PER_THREAD = re.compile(r"_pt[ds][sz]$")
REVISION = re.compile(r"_v\d+$")
ROW = re.compile(r'^CALL\((\w+), (\d+), (\w+), (\w+), "([^"]*)"\)$')


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One function of the driver."""

    symbol: str
    since: int  # in the form of CUDA_VERSION: 12040
    group: str  # its class
    handler: str
    reason: str

    @property
    def interposed(self) -> bool:
        """Whether programs get the shim's function instead of the driver's."""
        return self.handler != PASS

    @property
    def unhandled(self) -> bool:
        """Whether work or memory passes the shim by and the table does not say why it may."""
        must = self.group in WORK or self.group in MEMORY
        return must and not self.interposed and not self.reason.startswith("free: ")


def read(text: str) -> list[Row]:
    """Parse all lines of the table.

    Raises:
        ValueError: a line begins like a table line but is none; the message names it.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("CALL"):
            continue
        match = ROW.match(line)
        if match is None:
            msg = (
                f"calls.def line {number} is no CALL(symbol, since, class, handler, reason): {line}"
            )
            raise ValueError(msg)
        symbol, since, group, handler, reason = match.groups()
        row = Row(symbol=symbol, since=int(since), group=group, handler=handler, reason=reason)
        rows.append(row)
    return rows


def headers(folder: Path = HEADERS) -> dict[str, list[str]]:
    """What each version of cuda.h declares: "12.4" -> names, oldest version first."""
    found = {path.stem: path.read_text().split() for path in folder.glob("*.txt")}
    return dict(sorted(found.items(), key=lambda item: version_number(item[0])))


def version_number(version: str) -> int:
    """The CUDA_VERSION of "12.4": 12040."""
    major, minor = version.split(".")
    return int(major) * 1000 + int(minor) * 10


def version_name(number: int) -> str:
    """The version of CUDA_VERSION 12040: "12.4"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def problems(rows: Sequence[Row], declared: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what is wrong with the table, one sentence each."""
    known = {row.symbol for row in rows}
    symbols = [row.symbol for row in rows]
    for before, after in itertools.pairwise(symbols):
        if before == after:
            yield f"'{after}' has two lines"
        elif before > after:
            yield f"'{after}' stands after '{before}'; the table is sorted by byte values"
    for version, names in declared.items():
        for name in names:
            if name not in known:
                yield f"'{name}' of cuda.h {version} has no line; give it one"
    anywhere = {name for names in declared.values() for name in names}
    for row in rows:
        yield from _problems_of(row, declared, is_declared=row.symbol in anywhere)
    yield from _disagreements(rows)


def _problems_of(
    row: Row, declared: Mapping[str, Sequence[str]], *, is_declared: bool
) -> Iterator[str]:
    name = f"'{row.symbol}'"
    if not is_declared:
        yield f"{name} is declared by no cuda.h in csrc/api"
    if row.group not in CLASSES:
        yield f"{name} has the class '{row.group}'; known are {', '.join(CLASSES)}"
    if not row.reason.strip() or not row.reason.split(": ")[-1].strip():
        yield f"{name} gives no reason"
    if row.unhandled:
        yield f"{name} is of class '{row.group}' and passes: give a handler, or 'free: ' and why"
    too_old = [v for v in declared if version_number(v) < row.since and row.symbol in declared[v]]
    if too_old:
        yield f"{name} cannot be new in {row.since}: cuda.h {too_old[0]} declares it"


def _disagreements(rows: Sequence[Row]) -> Iterator[str]:
    """Find calls whose treatment depends on the symbol by which a program calls them."""
    by_symbol = {row.symbol: row for row in rows}
    first: dict[str, Row] = {}
    for row in rows:
        plain = by_symbol.get(PER_THREAD.sub("", row.symbol), row)
        if (row.group, row.handler) != (plain.group, plain.handler):
            yield f"'{row.symbol}' and '{plain.symbol}' differ in class or handler"
        base = REVISION.sub("", plain.symbol)
        other = first.setdefault(base, row)
        if row.group != other.group or row.interposed != other.interposed:
            yield f"'{row.symbol}' and '{other.symbol}' differ in class, or one of them passes"


def coverage(
    rows: Sequence[Row],
    declared: Mapping[str, Sequence[str]],
    built_with: str,
    built: Collection[str],
) -> dict[str, object]:
    """What `tandem doctor --coverage` reports: each header's functions by class, and the gaps.

    `built` holds the names that the build's header, of version `built_with`, declares.
    """
    known = {row.symbol: row for row in rows}
    return {
        "built_with": built_with,
        "headers": {
            version: {"functions": len(names)}
            | _covered([known[n] for n in names if n in known], built)
            | {"unclassified": [n for n in names if n not in known]}
            for version, names in sorted(declared.items(), key=lambda d: version_number(d[0]))
        },
    }


def _covered(rows: Sequence[Row], built: Collection[str]) -> dict[str, object]:
    classes = {group: {"handled": 0, "passed": 0, "unhandled": 0} for group in CLASSES}
    for row in rows:
        state = "handled" if row.interposed else "unhandled" if row.unhandled else "passed"
        classes[row.group][state] += 1
    return {
        "classes": classes,
        "unhandled": [row.symbol for row in rows if row.unhandled],
        # Handled, but not yet declared by the build's header: calls to them go unseen.
        "not_built": [r.symbol for r in rows if r.interposed and r.symbol not in built],
    }
