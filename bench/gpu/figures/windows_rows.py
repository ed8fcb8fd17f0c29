"""Reads what windows.cpp wrote: what the host saw of each launch, and what the device did with it.

On a GPU, kernels read the clock themselves. The software GPU's kernels have no clock, but its
timeline tells more.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.figures.slices import Ran, Stretch, stretches_of

LAUNCH_NS = 10_000  # from the host's launch until the device can begin it, approximately
KERNEL = "stamped"
_HEAD = 6  # words before the gaps


@dataclass(frozen=True, slots=True)
class Row:
    """One launch, in ns by the host's clock; `done_ns` is 0 if its end was not waited for."""

    arrival_ns: int
    submitted_ns: int
    done_ns: int
    ran: Ran


def best_clock(compared: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The most accurate of the programs' comparisons of the device's clock with the host's.

    It is used for all programs, since they read the same clock: with two comparisons, the
    difference of their errors would shift the programs' kernels against each other.
    """
    return min(compared, key=lambda clock: float(clock["error_ns"]))


def read_rows(path: Path, offset_ns: int) -> list[Row]:
    """Read the rows, by the host's clock; the device's is `offset_ns` ahead of it."""
    words = array("Q")
    words.frombytes(path.read_bytes())
    return list(_rows(words, offset_ns))


def _rows(words: array[int], offset_ns: int) -> Iterator[Row]:
    at = 0
    while at < len(words):
        arrival_ns, submitted_ns, done_ns, begin_ns, end_ns, count = words[at : at + _HEAD]
        pairs = [w - offset_ns for w in words[at + _HEAD : at + _HEAD + 2 * count]]
        gaps = zip(pairs[::2], pairs[1::2], strict=True)
        stretches = stretches_of(begin_ns - offset_ns, end_ns - offset_ns, gaps)
        yield Row(arrival_ns, submitted_ns, done_ns, Ran(submitted_ns + LAUNCH_NS, stretches))
        at += _HEAD + 2 * count


class Timeline:
    """The software GPU's timeline, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def new(self) -> dict[int, list[Ran]]:
        """The kernels that ended since the last call, by pid."""
        found: dict[tuple[int, int], Ran] = {}  # by pid and operation
        for line in self._lines():
            part = json.loads(line)
            if part["kind"] != "kernel" or part["name"] != KERNEL:
                continue
            key = (part["pid"], part["op"])
            known = found.get(key, Ran(part["t_ready_ns"], ()))
            stretches = _joined(known.stretches, (part["t_start_ns"], part["t_end_ns"]))
            found[key] = Ran(known.ready_ns, stretches)
        kernels: dict[int, list[Ran]] = {}
        for (pid, _), ran in found.items():
            kernels.setdefault(pid, []).append(ran)
        return kernels

    def _lines(self) -> list[bytes]:
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return whole.splitlines()


def _joined(stretches: tuple[Stretch, ...], stretch: Stretch) -> tuple[Stretch, ...]:
    """Add a stretch; one that begins as the last one ends continues it, on other SMs."""
    if stretches and stretches[-1][1] == stretch[0]:
        return (*stretches[:-1], (stretches[-1][0], stretch[1]))
    return (*stretches, stretch)
