"""A crowd of attached processes: the program attach.cpp, from its report until the block ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """How the attaching went."""

    attached: int
    lost: int
    wall_ns: int


@contextmanager
def crowd(place: Stage, count: int) -> Iterator[Crowd]:
    """Attach `count` processes at once and keep them."""
    program = place.compile("attach.cpp")
    socket = place.folder / "run" / "attach.sock"
    child = subprocess.Popen(
        [str(program), str(socket), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        words = child.stdout.readline().split() if child.stdout else []
        fields = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        yield Crowd(**fields)
    finally:
        child.communicate()  # its stdin ends, and with it the crowd
