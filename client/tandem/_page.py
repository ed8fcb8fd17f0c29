"""Pieces of HTML pages that need no network: the common look, facts, tables that sort themselves.

Everything that comes from a job is escaped: whoever named a kernel chose the text.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from tandem._text import printable
from tandem.units import format_bytes

Cell = str | tuple[float, str]  # text, or a figure to sort by and how it is shown

STYLE = Path(__file__).with_name("_page.css").read_text(encoding="utf-8")
SORTING = Path(__file__).with_name("_page.js").read_text(encoding="utf-8")


def fact(name: str, value: str) -> str:
    """One of the figures on top of a page."""
    return f"<div><span>{escape(name)}</span><b>{escape(plain(value))}</b></div>"


def note(text: str) -> str:
    """A remark."""
    return f'<p class="note">{escape(plain(text))}</p>'


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A heading and a table; nothing where there are no rows."""
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
    """Without what turns text around or makes it invisible."""
    return printable(text) or "(no name)"


def hue(place: int) -> int:
    """Of what has that place: far from those before it, and from red, which means something."""
    return round(30 + (place * 0.618 + 0.6) % 1 * 290)


def count(number: int) -> Cell:
    """How many."""
    return number, f"{number:,}"


def size(size_bytes: int) -> Cell:
    """How much memory."""
    return size_bytes, format_bytes(size_bytes)


def span(ns: float) -> Cell:
    """How long."""
    return ns, time_text(ns)


def time_text(ns: float) -> str:
    """Four digits and a unit."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.4g} {unit}"
    return f"{ns:.4g} ns"
