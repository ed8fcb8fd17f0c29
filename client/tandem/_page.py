"""Pieces of HTML pages that need no network: common style, key figures, sortable tables.

All text from a job is escaped: whoever named a kernel chose it.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from tandem._text import printable
from tandem.units import format_bytes

Cell = str | tuple[float, str]  # text, or a number to sort by and the text shown for it

STYLE = Path(__file__).with_name("_page.css").read_text(encoding="utf-8")
SORTING = Path(__file__).with_name("_page.js").read_text(encoding="utf-8")


def fact(name: str, value: str) -> str:
    """A key figure at the top of a page."""
    return f"<div><span>{escape(name)}</span><b>{escape(plain(value))}</b></div>"


def note(text: str) -> str:
    """A paragraph with a remark."""
    return f'<p class="note">{escape(plain(text))}</p>'


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A heading and a table; empty if there are no rows."""
    found = list(rows)
    if not found:
        return ""
    body = ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in found]
    heads = "".join(
        f"<th{'' if isinstance(found[0][i], str) else ' class=n'}>{escape(name)}</th>"
        for i, name in enumerate(header)
    )
    return (
        f"<h2>{escape(title)}</h2><div class='scroll'><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(plain(cell))}</td>"
    value, shown = cell
    return f"<td class=n data-v='{value!r}'>{escape(shown)}</td>"


def plain(text: str) -> str:
    """Remove characters that reverse text or make it invisible."""
    return printable(text) or "(no name)"


def hue(place: int) -> int:
    """A hue for the item at `place`, far from those before it and from red, which has a meaning."""
    return round(30 + (place * 0.618 + 0.6) % 1 * 290)


def count(number: int) -> Cell:
    """A cell with a count."""
    return number, f"{number:,}"


def size(size_bytes: int) -> Cell:
    """A cell with an amount of memory."""
    return size_bytes, format_bytes(size_bytes)


def span(ns: float) -> Cell:
    """A cell with a duration."""
    return ns, time_text(ns)


def time_text(ns: float) -> str:
    """A duration with four significant digits and a unit."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns:.4g} ns"
