"""Describes the faults of a configuration, one per line: the file, the key, and what to write."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def faults_of(
    error: ValidationError, table: type[BaseModel], origin: Mapping[str, Path], otherwise: Path
) -> str:
    """Report all faults. `table` is the root's model; `otherwise` stands for keys in no file."""
    lines = []
    faults = error.errors()
    misnamed = [fault["loc"][:-1] for fault in faults if fault["loc"][-1:] == ("[key]",)]
    for fault in faults:
        if fault["loc"] in misnamed:
            continue  # one report is enough
        keys = [str(part) for part in fault["loc"] if part != "[key]"]
        where = ".".join(keys)
        if fault["type"] == "extra_forbidden":
            what = "unknown key" + _meant(keys[-1], _table_at(table, keys[:-1]))
        else:
            what = _said(fault["msg"], fault["input"])
            if fault["type"] == "string_type":
                what += _example(keys[-1], _table_at(table, keys[:-1]))
        said = (file for key, file in origin.items() if f"{key}.".startswith(f"{where}."))
        lines.append(f"{next(said, otherwise)}: {where}: {what}")
    return "\n".join(lines)


def _said(message: str, value: object) -> str:
    """Add the value to the messages of pydantic; our own contain it already."""
    if message.startswith("Value error, ") or not isinstance(value, str | int | float):
        return message.removeprefix("Value error, ")
    return f"{message}, not {value!r}"


def _meant(key: str, table: type[BaseModel] | None) -> str:
    near = get_close_matches(key, _annotations(table), n=1) if table else []
    return f"; did you mean {near[0]}?" if near else ""


def _example(key: str, table: type[BaseModel] | None) -> str:
    """Suggest quotes for a text, with the example of its field, or else its default."""
    field = table.model_fields.get(key) if table else None
    default = None if field is None else next(iter(field.examples or ()), field.default)
    return f'; write it in quotes, such as {key} = "{default}"' if isinstance(default, str) else ""


def _table_at(table: type[BaseModel], keys: list[str]) -> type[BaseModel] | None:
    """Return the table under these keys; None: there is none."""
    kind: Any = table
    for key in keys:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = _annotations(kind).get(key)
        else:  # a mapping; the key is one of its names or numbers
            kind = next(iter(get_args(kind)[-1:]), None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _annotations(table: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in table.model_fields.items()}
