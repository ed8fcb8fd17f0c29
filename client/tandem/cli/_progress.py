"""What a command that takes a while is doing, on one line of a terminal's stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CLEAR = "\r\x1b[K"  # back to the begin of the line, and erase it


class Progress:
    """Shows one text at a time, or nothing where nobody looks or it is over soon."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown

    def now(self, text: str) -> None:
        """Replace what is shown; nothing: erase it."""
        if self._is_shown:
            print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)


@contextmanager
def progress(*, is_long: bool) -> Iterator[Progress]:
    """One that erases itself at the end, however that comes."""
    shown = Progress(is_shown=is_long and sys.stderr.isatty())
    try:
        yield shown
    finally:
        shown.now("")
