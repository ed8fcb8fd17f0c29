"""Write docs/config.md from the schema of the daemon's configuration.

python packaging/generate_config_docs.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tandemd.config.config import Config
from tandemd.config.restarts import AT_START
from tandemd.config.tables import Form

OUTPUT = Path(__file__).resolve().parent.parent / "docs"
NAME = "config.md"

PREFACE = """\
# The daemon's configuration

Made from the schema by `python packaging/generate_config_docs.py`; do not edit. Where the files
are, what a reload does and how to check them: [operations.md](operations.md#configure-it).

Sizes and durations are quoted and carry a unit: `"20GiB"`, `"20G"` and `"20g"` are the same,
`"20GB"` is decimal, and `"60s"` is a duration. The unit of a plain number is the end of its key:
`_ms`, `_us` and `_s` are times, `_bytes` sizes, `_count` numbers of something, and a `_ratio` is
between 0 and 1. The file may begin with `version = 1`, the only version there is.
"""
UNITS = {"_ms": "ms", "_us": "us", "_s": "s", "_bytes": "bytes"}
RATES = {"_per_s": "a second"}


def generate(folder: Path) -> None:
    """Write the page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join([PREFACE, *_tables(Config, "")])
    (folder / NAME).write_text(text.rstrip("\n") + "\n")


def _tables(table: type[BaseModel], path: str) -> Iterator[str]:
    """Yield each nested table, depth first; a table that occurs twice, once."""
    seen = set[type[BaseModel]]()
    for name, field in table.model_fields.items():
        key = field.alias or name
        inner = _table_of(field.annotation)
        if inner is None or inner in seen:
            continue
        seen.add(inner)
        rows = [*_rows(inner, f"{path}{key}.")]
        if rows:
            title, *more = (inner.__doc__ or "").strip().split("\n", 1)
            yield f"## {_title(title)}\n"
            yield from _prose(title, more)
            yield "\n".join(["| key | value | default | effect |", "|---|---|---|---|", *rows, ""])
        yield from _tables(inner, f"{path}{key}.")


def _title(line: str) -> str:
    """The title: the part of a docstring's first line before the colon."""
    return line.partition(":")[0].rstrip(".").replace('"', "")


def _prose(title: str, more: list[str]) -> Iterator[str]:
    """The rest of the docstring, as one paragraph."""
    _, colon, rest = title.partition(":")
    told = " ".join([rest.strip()] * bool(colon) + " ".join(more).split())
    if told:
        yield f"{told[0].upper()}{told[1:].rstrip('.')}.\n"


def _rows(table: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in table.model_fields.items():
        if _table_of(field.annotation) is None:
            key = field.alias or name
            effect = field.description
            if effect is None:
                raise SystemExit(f"{path}{key}: give it a description, which is its line here")
            if f"{path}{key}" in AT_START:
                effect = f"{effect}. A change needs a restart"
            yield f"| `{key}` | {_value(key, field)} | {_default(field)} | {effect} |"


def _table_of(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - whatever a field may be
    """The table that a field holds, directly or in a dictionary; None if it holds a value."""
    if get_origin(annotation) is dict:
        annotation = get_args(annotation)[1]
    is_table = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_table else None


def _value(key: str, field: FieldInfo) -> str:
    """Describe the values that a field accepts, with unit and range."""
    kind, metadata = _bare(field.annotation, field.metadata)
    form = next((one.text for one in metadata if isinstance(one, Form)), None)
    if form is not None:
        return form
    if get_origin(kind) is Literal:
        return ", ".join(f"`{json.dumps(word)}`" for word in get_args(kind))
    if kind is bool:
        return "`true`, `false`"
    named = "whole number" if kind is int else "number"
    kind_of = " ".join(filter(None, [named, _unit(key)]))
    return ", ".join(filter(None, [kind_of, _range(metadata)]))


def _bare(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - likewise
    """Strip None and `Annotated` from a type; add the metadata found inside."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    inner = list(getattr(annotation, "__metadata__", ()))
    return (get_args(annotation)[0] if inner else annotation), [*metadata, *inner]


def _unit(key: str) -> str:
    rate = next((word for end, word in RATES.items() if key.endswith(end)), "")
    unit = next((word for end, word in UNITS.items() if key.endswith(end)), "")
    return rate or (f"of {unit}" if unit else "")


def _range(metadata: list[Any]) -> str:
    """`0 to 64`, `more than 0`, `1 or more`."""
    bounds = {type(one): one for one in metadata if isinstance(one, Ge | Gt | Le)}
    least = _number(bounds[Ge].ge) if Ge in bounds else None
    if Gt in bounds:
        least = f"more than {_number(bounds[Gt].gt)}"
    most = _number(bounds[Le].le) if Le in bounds else None
    if least is None:
        return "" if most is None else f"up to {most}"
    if most is None:
        return least if Gt in bounds else f"{least} or more"
    return f"{least} and up to {most}" if Gt in bounds else f"{least} to {most}"


def _number(value: float) -> str:
    return f"{value:,}" if value == int(value) else f"{value:g}"


def _default(field: FieldInfo) -> str:
    if field.default is None:
        return ""
    value = field.default
    if isinstance(value, float):
        value = int(value) if value == int(value) else value
    return f"`{re.sub('e-0', 'e-', json.dumps(value))}`"


if __name__ == "__main__":
    generate(OUTPUT)
