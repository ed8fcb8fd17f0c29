"""A crowd of attached processes, run by the program attach.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.stage import NotMeasuredError, Stage, next_line


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The outcome of attaching: processes attached and lost, and the time it took."""

    attached: int
    lost: int
    wall_ns: int


@contextmanager
def crowd(place: Stage, count: int) -> Iterator[Crowd]:
    """Attach `count` processes at once; they stay until the block ends."""
    command: list[str | Path] = [place.compile("attach.cpp"), place.attach_socket, str(count)]
    with place.running(command, place.env) as child:
        words = next_line(child).split()
        if not words:
            raise NotMeasuredError("the crowd ended without a report")
        fields = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        yield Crowd(**fields)
        child.communicate()  # closes the program's stdin, which ends the crowd
