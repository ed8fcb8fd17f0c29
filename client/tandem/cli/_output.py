"""Printing for commands: aligned tables, JSON, and colour only on a terminal."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TypeVar

import click

from tandem._text import printable
from tandem.errors import StateError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from tandem._client import Client

_Command = TypeVar("_Command", bound=Callable[..., object])

COLOURS = {"running": "green", "waiting": "yellow", "paused": "yellow", "swapped": "yellow"}
COLOURS |= {"ok": "green", "warn": "yellow", "fail": "red"}
_GAP = "  "


def json_option(command: _Command) -> _Command:
    """Add `--json`, which every command that reads has."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON with stable names.")
    return option(command)


def open_client() -> "Client":
    """Open a client of the daemon; its libraries are imported only here.

    Raises:
        StateError: the client's libraries are not installed.
    """
    with from_extra("client"):
        from tandem._client import Client
    return Client()


@contextmanager
def from_extra(extra: str) -> Iterator[None]:
    """Guard imports of modules that only one of Tandem's extras installs.

    Raises:
        StateError: such a module is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in ("google", "grpc", "grpc_health"):
            raise
        raise StateError(
            f"this command needs {exc.name}, which is not installed; "
            f"install Tandem with its [{extra}] extra: pip install 'gpu-tandem[{extra}]'"
        ) from exc


def print_json(value: "DataclassInstance | Sequence[DataclassInstance]") -> None:
    """One dataclass as an object, several as an array; names and units as in the Python API."""
    plain = asdict(value) if is_dataclass(value) else [asdict(v) for v in value]
    click.echo(json.dumps(plain, indent=2))


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()
) -> None:
    """Print a table; columns named in `right` hold figures and are right-aligned.

    On a terminal the last column is cut at the end of the line; in a pipe it is whole.
    """
    body = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *body]) for i in range(len(header))]
    if on_terminal():
        before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        widths[-1] = max(len(header[-1]), get_terminal_size().columns - before)
    figures = {header.index(name) for name in right}
    for row in [list(header), *body]:
        cells = [
            cell.rjust(width) if i in figures else cell.ljust(width)[:width]
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo(_GAP.join(map(paint, cells)).rstrip())


def paint(word: str) -> str:
    """Colour a state, on a terminal without NO_COLOR; return any other word unchanged."""
    colour = COLOURS.get(word.strip())
    if colour is None or "NO_COLOR" in os.environ or not on_terminal():
        return word
    return click.style(word, fg=colour)


def on_terminal() -> bool:
    """Tell whether our output goes to a terminal."""
    return sys.stdout.isatty()
