"""Tables whose columns a user chooses, for people and as CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

import click

from tandem._text import printable
from tandem.cli._output import print_table
from tandem.cli._parsed import Parsed
from tandem.errors import UsageError

_Item = TypeVar("_Item")
_Command = TypeVar("_Command", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[_Item]):
    """One column, for people and for programs."""

    header: str
    text: Callable[[_Item, int], str]  # of an item, at a time since 1970 in ns
    fields: Mapping[str, Callable[[_Item], object]]  # what it is made of, as --json calls it
    is_figure: bool = False


def column(
    header: str, text: Callable[[_Item], str], *names: str, is_figure: bool = False
) -> Column[_Item]:
    """One that is the same at any time, made of these attributes of an item."""
    return Column(
        header=header,
        text=lambda item, _now_ns: text(item),
        fields=fields(*names),
        is_figure=is_figure,
    )


def fields(*names: str) -> dict[str, Callable[[object], object]]:
    """Those attributes of an item."""
    return {name: attrgetter(name) for name in names}


def column_options(known: Mapping[str, Column[_Item]]) -> Callable[[_Command], _Command]:
    """`-o` and `--format`, as `chosen` and `form`."""

    def decorate(command: _Command) -> _Command:
        names = ",".join(known)
        command = click.option(
            "--format",
            "form",
            type=click.Choice(["table", "csv"]),
            default="table",
            help="csv: as RFC 4180 has it, with a line of names, which are those of --json; what a "
            "column is made of are several, and sizes and times plain numbers.",
        )(command)
        return click.option(
            "-o",
            "--columns",
            "chosen",
            type=Parsed("COLUMNS", lambda text, *, what: _parse(text, known, what=what)),
            help=f"Only these columns, in this order, of {names}.",
        )(command)

    return decorate


def check_form(chosen: Sequence[str] | None, form: str, *, as_json: bool) -> None:
    """Refuse what --json leaves nothing to say about.

    Raises:
        UsageError: it is said with one of the others.
    """
    if as_json and (chosen or form != "table"):
        said = "-o" if chosen else f"--format {form}"
        raise UsageError(f"--json has all there is, and {said} says nothing to it; say one of them")


def print_items(
    items: Sequence[_Item], columns: Iterable[Column[_Item]], *, form: str, now_ns: int = 0
) -> None:
    """A table, or CSV."""
    shown = list(columns)
    if form == "csv":
        click.echo(_csv(items, shown), nl=False)
        return
    rows = [[column.text(item, now_ns) for column in shown] for item in items]
    figures = [column.header for column in shown if column.is_figure]
    print_table([column.header for column in shown], rows, right=figures)


def _parse(text: str, known: Mapping[str, Column[_Item]], *, what: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"{what} {text!r}: no column {name!r}; known are {', '.join(known)}")
    return names


def _csv(items: Sequence[_Item], columns: Sequence[Column[_Item]]) -> str:
    values = [value for column in columns for value in column.fields.values()]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(name for column in columns for name in column.fields)
    writer.writerows([_plain(value(item)) for value in values] for item in items)
    return text.getvalue()


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else printable(str(value))
