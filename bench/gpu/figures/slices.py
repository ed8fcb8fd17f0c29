"""What two programs' kernels did on the device: slices, switches, waits, overlap.

A *stretch* is a time span in which a kernel made progress, (from, to) in ns; a kernel whose context
was switched out has several. A *run* is a sequence of one program's stretches with none of the
other's in between.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Stretch = tuple[int, int]
NONE_SEEN = "none seen"


@dataclass(frozen=True, slots=True)
class Ran:
    """One kernel: when it was ready, so that only others' work held it back, and its stretches."""

    ready_ns: int
    stretches: tuple[Stretch, ...]


class Run(NamedTuple):
    """A run of program `who`, 0 or 1. Its first stretch could have begun at `ready_ns`."""

    who: int
    begin_ns: int
    end_ns: int
    ready_ns: int


class Turns(NamedTuple):
    """Lengths in ns; slices and waits by program, that which had the device or which waited."""

    slices: tuple[list[int], list[int]]  # runs during all of which the other had work
    waits: tuple[list[int], list[int]]  # from being ready until its turn, after the other's
    switches: list[int]  # from one's end to the other's begin, if the other was ready at that end


def stretches_of(begin_ns: int, end_ns: int, gaps: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """The rest of a kernel's time without its gaps, which several threads may have reported."""
    found = []
    at_ns = begin_ns
    for gap_begin_ns, gap_end_ns in sorted(gaps):
        if gap_begin_ns > at_ns:
            found.append((at_ns, gap_begin_ns))
        at_ns = max(at_ns, gap_end_ns)
    if end_ns > at_ns:
        found.append((at_ns, end_ns))
    return tuple(found)


def runs_of(first: Sequence[Ran], second: Sequence[Ran]) -> list[Run]:
    """The runs of both programs' kernels in order of time."""
    pieces = sorted([*_pieces(0, first), *_pieces(1, second)], key=lambda p: (p.begin_ns, p.end_ns))
    runs: list[Run] = []
    for piece in pieces:
        if runs and runs[-1].who == piece.who:
            longer = max(runs[-1].end_ns, piece.end_ns)
            runs[-1] = runs[-1]._replace(end_ns=longer)
        else:
            runs.append(piece)
    return runs


def turns_of(runs: Sequence[Run]) -> Turns:
    """The lengths of the turns that two programs took; ignores stretches that overlap."""
    turns = Turns(([], []), ([], []), [])
    before: Run | None = None  # the previous run of the program that comes next
    for run, following in pairwise(runs):
        if following.begin_ns >= run.end_ns >= following.ready_ns:
            turns.switches.append(following.begin_ns - run.end_ns)
            since_ns = max(following.ready_ns, before.end_ns if before else 0)
            turns.waits[following.who].append(following.begin_ns - since_ns)
            if following.ready_ns <= run.begin_ns:
                turns.slices[run.who].append(run.end_ns - run.begin_ns)
        before = run
    return turns


def overlap_ns(first: Iterable[Ran], second: Iterable[Ran]) -> int:
    """How long both programs had a kernel running."""
    ours, theirs = _union(first), _union(second)
    total = i = j = 0
    while i < len(ours) and j < len(theirs):
        begin_ns, end_ns = max(ours[i][0], theirs[j][0]), min(ours[i][1], theirs[j][1])
        total += max(0, end_ns - begin_ns)
        if ours[i][1] < theirs[j][1]:
            i += 1
        else:
            j += 1
    return total


def busy_ns(kernels: Iterable[Ran]) -> int:
    """How long any of the kernels ran."""
    return sum(end_ns - begin_ns for begin_ns, end_ns in _union(kernels))


def spread(lengths_ns: Sequence[int]) -> dict[str, float | int | str]:
    """Median and 99th percentile in us, and the count."""
    if not lengths_ns:
        return {"median_us": NONE_SEEN, "p99_us": NONE_SEEN, "count": 0}
    return {
        "median_us": round(statistics.median(lengths_ns) / 1e3, 2),
        "p99_us": round(quantile(lengths_ns, 0.99) / 1e3, 2),
        "count": len(lengths_ns),
    }


def quantile(values: Sequence[int], share: float) -> int:
    """The least value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _pieces(who: int, kernels: Iterable[Ran]) -> Iterator[Run]:
    for kernel in kernels:
        ready_ns = kernel.ready_ns
        for begin_ns, end_ns in kernel.stretches:
            yield Run(who, begin_ns, end_ns, ready_ns)
            ready_ns = end_ns  # interrupted: ready to continue


def _union(kernels: Iterable[Ran]) -> list[Stretch]:
    joined: list[Stretch] = []
    for begin_ns, end_ns in sorted(s for kernel in kernels for s in kernel.stretches):
        if joined and begin_ns <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_ns))
        else:
            joined.append((begin_ns, end_ns))
    return joined
