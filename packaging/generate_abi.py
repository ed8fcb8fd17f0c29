"""Write csrc/core/abi.txt: the binary layout of everything that jobs and the daemon exchange.

    python packaging/generate_abi.py [--output FOLDER]

One line per item, as compiled: a struct and its size, a field with its offset and type, the value
of an enumerator or a constant. Within a version, what older builds read must not change: a listing
that would break them is not written, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "csrc" / "core"
OUTPUT = CORE
NAME = "abi.txt"
VERSIONS = {  # by namespace: the constant to raise when its layout changes
    "wire": "wire::kProtocolVersion",
    "shm": "shm::kLayoutVersion",
    "trace": "trace::kTraceVersion",
}
SIGNED = (5, 6)  # DW_ATE_signed, DW_ATE_signed_char
PREFACE = """\
# Where everything is that crosses between a job and the daemon: bytes of structs, offsets and types
# of fields, values. Made by `python packaging/generate_abi.py`; do not edit. It may only grow.
"""

Listing = Mapping[str, str]


def main() -> int:
    """Write the listing unless it would break older builds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the listing")
    output = parser.parse_args().output
    broken = breaks(read(OUTPUT / NAME), compiled())
    if broken:
        print("older builds would go wrong; raise the version:", *broken, sep="\n", file=sys.stderr)
        return 1
    generate(output)
    return 0


def generate(output: Path) -> None:
    """Write the listing into `output`, even if it breaks older builds."""
    lines = [f"{name} {value}\n" for name, value in compiled().items()]
    (output / NAME).write_text(PREFACE + "".join(lines))


def read(path: Path) -> Listing:
    """Read a listing from a file."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)


def breaks(before: Listing, after: Listing) -> list[str]:
    """List the entries of `before` that a build made with it would no longer find in `after`."""
    raised = {s for s, version in VERSIONS.items() if int(after[version]) > int(before[version])}
    return [
        f"{name} {value} became {after.get(name, 'nothing')}"
        for name, value in before.items()
        if name.partition("::")[0] not in raised
        and not _is_reserved(name)
        and not (name in after and _may_become(name, value, after[name], before))
    ]


def _is_reserved(name: str) -> bool:
    """Whether the field is reserved, so that other fields may take its place."""
    return name.rpartition(".")[2].startswith("reserved")


def _may_become(name: str, value: str, fresh: str, before: Listing) -> bool:
    if value == fresh:
        return True
    if _ends_a_message(name, before):
        (start, length), (fresh_start, fresh_length) = _text(value), _text(fresh)
        return start == fresh_start and fresh_length > length
    # A count may grow, and so may a message; any field that moves because of it has its own entry.
    grows = name.endswith(("Count", "Bytes")) or f"{name}.header" in before
    return (grows or name in VERSIONS.values()) and int(fresh) > int(value)


def _ends_a_message(name: str, listing: Listing) -> bool:
    struct = name.partition(".")[0]
    fields = [each for each in listing if each.startswith(f"{struct}.")]
    return name in fields[-1:] and f"{struct}.header" in fields


def _text(value: str) -> tuple[str, int]:
    """Split a field into its offset with type, and its array length."""
    start, _, length = value.partition("[")
    return start, int(length.rstrip("]") or 1)


def compiled(headers: Path = CORE) -> Listing:
    """Compile the headers in a folder and list their layout from the debug information."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "abi.o"
        command = [os.environ.get("CXX", "g++"), "-std=c++17", "-c", "-g", f"-I{headers}"]
        command += [f"-fno-eliminate-unused-debug-{what}" for what in ("types", "symbols")]
        subprocess.run(
            [*command, "-x", "c++", "-", "-o", str(output)],
            input='#include "trace_layout.h"\n#include "wire.h"\n',
            text=True,
            check=True,
        )
        with output.open("rb") as file:
            return dict(_everything(ELFFile(file)))


def _everything(elf: ELFFile) -> Iterator[tuple[str, str]]:
    for unit in elf.get_dwarf_info().iter_CUs():
        for space in _children(unit.get_top_DIE(), "namespace"):
            if _name(space) == "tandem":
                for inner in _children(space, "namespace"):
                    yield from _members(inner, f"{_name(inner)}::")


def _members(scope: DIE, prefix: str) -> Iterator[tuple[str, str]]:
    for die in scope.iter_children():
        name = f"{prefix}{_name(die)}"
        if die.tag == "DW_TAG_variable" and "DW_AT_const_value" in die.attributes:
            yield name, str(_number(die, "const_value"))
        elif die.tag == "DW_TAG_enumeration_type":
            for value in _children(die, "enumerator"):
                yield f"{name}::{_name(value)}", str(_number(value, "const_value"))
        elif die.tag == "DW_TAG_structure_type" and "DW_AT_byte_size" in die.attributes:
            yield name, str(_number(die, "byte_size"))
            yield from _members(die, f"{name}::")  # nested structs
            for field in _children(die, "member"):
                where = _number(field, "data_member_location")
                yield f"{name}.{_name(field)}", f"at {where}: {_type(field)}"


def _type(die: DIE) -> str:
    """Name the type as it is laid out in memory: an atomic has its value's type."""
    kind = die.get_DIE_from_attribute("DW_AT_type")
    if kind.tag == "DW_TAG_array_type":
        lengths = (_number(part, "upper_bound") + 1 for part in _children(kind, "subrange_type"))
        return _type(kind) + "".join(f"[{length}]" for length in lengths)
    if kind.tag == "DW_TAG_base_type":
        sign = "i" if _number(kind, "encoding") in SIGNED else "u"
        return "char" if _name(kind) == "char" else f"{sign}{8 * _number(kind, 'byte_size')}"
    if _name(kind).startswith("atomic<"):
        return _type(next(_children(kind, "template_type_param")))
    return _name(kind) if kind.tag != "DW_TAG_typedef" else _type(kind)


def _children(die: DIE, tag: str) -> Iterator[DIE]:
    return (child for child in die.iter_children() if child.tag == f"DW_TAG_{tag}")


def _name(die: DIE) -> str:
    name = die.attributes.get("DW_AT_name")
    return "" if name is None else name.value.decode()


def _number(die: DIE, attribute: str) -> int:
    return int(die.attributes[f"DW_AT_{attribute}"].value)


if __name__ == "__main__":
    sys.exit(main())
