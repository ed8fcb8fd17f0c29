"""Recent decisions about a job, each line once, with its count and the time of its last use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

STORY_LINES = 32


@dataclass(slots=True)
class _Told:
    first_ns: int
    last_ns: int
    times: int = 1


class Story:
    """The newest `STORY_LINES` distinct lines, ordered by when each was last told.

    A job that takes turns is held and released a hundred times a second: that makes two lines.
    """

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}  # by line

    def tell(self, now_ns: int, line: str) -> None:
        """Add a line, or count it again."""
        told = self._told.pop(line, None)
        if told is None:
            told = _Told(first_ns=now_ns, last_ns=now_ns)
        else:
            told.last_ns, told.times = now_ns, told.times + 1
        self._told[line] = told
        if len(self._told) > STORY_LINES:
            del self._told[next(iter(self._told))]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the last time and the line with its count, newest last."""
        for line, told in self._told.items():
            often = ""
            if told.times > 1:
                span_s = (told.last_ns - told.first_ns) / 1e9
                often = f" ({told.times:,} times in {span_s:.3f} s)"
            yield told.last_ns, line + often

    def counted(self) -> Iterator[tuple[int, str, int]]:
        """Yield the last time, the line and its count."""
        for line, told in self._told.items():
            yield told.last_ns, line, told.times
