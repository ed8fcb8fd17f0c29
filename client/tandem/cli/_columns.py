"""Tables whose columns the user chooses, printed for people or as CSV."""

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
    """One column, as people read it and as programs read it."""

    header: str
    text: Callable[[_Item, int], str]  # of an item and the present time, in ns since 1970
    fields: Mapping[str, Callable[[_Item], object]]  # its parts, by their names in --json
    is_figure: bool = False


def column(
    header: str, text: Callable[[_Item], str], *names: str, is_figure: bool = False
) -> Column[_Item]:
    """Make a column that does not depend on the time, from these attributes of an item."""
    return Column(
        header=header,
        text=lambda item, _now_ns: text(item),
        fields=fields(*names),
        is_figure=is_figure,
    )


def fields(*names: str) -> dict[str, Callable[[object], object]]:
    """Map each name to a getter of that attribute of an item."""
    return {name: attrgetter(name) for name in names}


def column_options(known: Mapping[str, Column[_Item]]) -> Callable[[_Command], _Command]:
    """Add `-o` and `--format`, which the command gets as `chosen` and `form`."""

    def decorate(command: _Command) -> _Command:
        names = ", ".join(known)
        command = click.option(
            "--format",
            "form",
            type=click.Choice(["table", "csv"]),
            default="table",
            help="csv: as in RFC 4180, with a header line of the names used by --json; a column "
            "made of several values becomes several, and sizes and times are plain numbers.",
        )(command)
        return click.option(
            "-o",
            "--columns",
            "chosen",
            type=Parsed("COLUMNS", lambda text, *, what: _parse(text, known, what=what)),
            help=f"Show only these columns, separated by commas, in this order; there are {names}.",
        )(command)

    return decorate


def check_form(chosen: Sequence[str] | None, form: str, *, as_json: bool) -> None:
    """Refuse options that choose columns or a format beside --json.

    Raises:
        UsageError: --json is given with one of them.
    """
    if as_json and (chosen or form != "table"):
        said = "-o" if chosen else f"--format {form}"
        raise UsageError(f"--json prints everything, so {said} has no effect; give one of them")


def print_items(
    items: Sequence[_Item], columns: Iterable[Column[_Item]], *, form: str, now_ns: int = 0
) -> None:
    """Print items as a table or, if `form` says so, as CSV."""
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
