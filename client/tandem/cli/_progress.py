"""Progress of a slow command, on one line of stderr if that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CLEAR = "\r\x1b[K"  # go to the start of the line, and erase it


class Progress:
    """Shows one text at a time, or nothing if there is no terminal or the work is short."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown

    def now(self, text: str) -> None:
        """Replace the text; an empty one erases the line."""
        if self._is_shown:
            print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)


@contextmanager
def progress(*, is_long: bool) -> Iterator[Progress]:
    """Yield a progress line that is erased at the end, even after an exception."""
    shown = Progress(is_shown=is_long and sys.stderr.isatty())
    try:
        yield shown
    finally:
        shown.now("")
