"""Limits on the size of a graph and of each output format, and advice for larger ones."""

from tandem._native import MOST_CHAINS, MOST_CONTEXTS
from tandem.dag.model import Window
from tandem.errors import UsageError

_MOST = {
    "dot": ("dot", 20_000),  # graphviz takes minutes for more than a few thousand
    "svg": ("a picture", 1_000_000),
    "html": ("a picture", 1_000_000),
}


def refuse_too_many(window: Window, count: int, form: str) -> None:
    """Refuse to show `count` operations in a format that is too limited for them.

    Raises:
        UsageError: the text says how many there are, the limit, and what to choose instead.
    """
    name, most = _MOST.get(form, (form, count))
    if count <= most:
        return
    known, is_whole = len(window.iterations), count == len(window.operations)
    part = f"--iteration N, of 1 to {known}, or " if known and is_whole else ""
    picture = "html, " if form == "dot" and count <= _MOST["html"][1] else ""
    raise UsageError(
        f"'{window.source}' has {count:,} operations there, but {name} takes at most {most:,}; "
        f"choose {part}--format {picture}perfetto or json, or `tandem dag stats`"
    )


def refuse_too_wide(window: Window) -> None:
    """Refuse a window with more streams and threads, or contexts, than a graph supports.

    Raises:
        UsageError: the text says how many there are, and the limit.
    """
    for count, most, what in (
        (len(window.streams) + len(window.threads), MOST_CHAINS, "streams and threads"),
        (window.contexts, MOST_CONTEXTS, "contexts"),
    ):
        if count > most:
            raise UsageError(
                f"'{window.source}' has {count:,} {what}, but a graph follows at most {most:,}; "
                "record a shorter part of the program"
            )
