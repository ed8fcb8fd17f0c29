"""The call table of a trace: names, parameters and enumerations.

The table is made from `shim/calls.def` and `cuda.h` when the shim is built. A file contains the
table it was recorded with, so that later versions can read it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

# Number of words that the shim writes for a parameter of each shape; see shim/trace/tracing.h.
SHAPE_WORDS = {
    "value": 1,
    "text": 1,
    "kernel": 1,
    "out": 2,
    "config": 10,
    "copy2d": 17,
    "copy3d": 16,
}

_SUFFIXES = ("_ptsz", "_ptds", "_v2", "_v3", "_v4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a call."""

    name: str
    type: str
    shape: str


@dataclass(frozen=True, kw_only=True, eq=False)
class CallType:
    """One driver function. Properties are cached: a trace has many calls of few types."""

    name: str
    group: str  # its class: launch, copy, alloc, sync and so on
    parameters: tuple[Parameter, ...]
    offsets: tuple[int, ...]  # index of the first word of each parameter
    words: int  # total for all parameters

    @cached_property
    def base(self) -> str:
        """The name as programs write it: `cuMemAlloc` for `cuMemAlloc_v2_ptsz`."""
        name = self.name
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)
        return name

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The index of each parameter's first word, by name."""
        names = (parameter.name for parameter in self.parameters)
        return dict(zip(names, self.offsets, strict=True))

    def value(self, words: tuple[int, ...], name: str) -> int | None:
        """The first word of a parameter; None if the call has no such parameter."""
        place = self.places.get(name)
        return None if place is None or place >= len(words) else words[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All calls by their number in a trace, and number -> name for each enumeration."""

    calls: tuple[CallType, ...]
    enums: Mapping[str, Mapping[int, str]]

    def result_name(self, result: int) -> str:
        """The name of a CUresult."""
        return self.enums.get("CUresult", {}).get(result, f"CUresult({result})")


def parse_table(text: str) -> Table:
    """Parse a table from JSON.

    Raises:
        ValueError: not a table; the text is to follow the name of what contains it.
    """
    return table_of(json.loads(text))


def table_of(value: object) -> Table:
    """Make a table from parsed JSON.

    Raises:
        ValueError: not a table; the text is to follow the name of what contains it.
    """
    try:
        calls = tuple(_call(row) for row in value["calls"])  # type: ignore[index]
        enums = {
            str(name): {int(number): str(member) for number, member in members.items()}
            for name, members in value["enums"].items()  # type: ignore[index]
        }
    except KeyError as exc:
        msg = f"has a table of calls in which {exc} is missing"
        raise ValueError(msg) from exc
    except (AttributeError, TypeError) as exc:
        msg = "has a table of calls in which a value is of another type"
        raise ValueError(msg) from exc
    except ValueError as exc:
        msg = f"has a table of calls that is wrong: {exc}"
        raise ValueError(msg) from exc
    return Table(calls=calls, enums=enums)


def _call(row: Mapping[str, object]) -> CallType:
    parameters = tuple(
        Parameter(name=str(p["name"]), type=str(p["type"]), shape=str(p["shape"]))
        for p in row["parameters"]  # type: ignore[attr-defined]
    )
    for parameter in parameters:
        if parameter.shape not in SHAPE_WORDS:
            msg = f"{row['name']} has a parameter of the unknown shape {parameter.shape!r}"
            raise ValueError(msg)
    group = str(row["class"]).removeprefix("k").lower()  # older files have kSync for sync
    sizes = [SHAPE_WORDS[p.shape] for p in parameters]
    offsets = tuple(sum(sizes[:i]) for i in range(len(sizes)))
    return CallType(
        name=str(row["name"]),
        group=group,
        parameters=parameters,
        offsets=offsets,
        words=sum(sizes),
    )


def to_json(table: Table) -> dict[str, object]:
    """The table in the form that `table_of` reads."""
    return {
        "calls": [
            {
                "name": call.name,
                "class": call.group,
                "parameters": [
                    {"name": p.name, "type": p.type, "shape": p.shape} for p in call.parameters
                ],
            }
            for call in table.calls
        ],
        "enums": {
            name: {str(number): member for number, member in members.items()}
            for name, members in table.enums.items()
        },
    }
