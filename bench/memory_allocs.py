"""What the shim adds to an allocation and its free, in a job that stays and in one that may move.

Measured on an empty driver, as in calls.py; a real driver's time for a mapping comes on top. A C
program times the driver's own functions (bare) and those that a program finds, as an attached job
without a limit; figures are the smallest of the medians. In a job that may be moved, small memory
comes out of a slab that is mapped already (`small`), and large memory is reserved, created and
mapped in two pieces (`large`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.bars import Bar, bar, progress, smallest_median
from bench.one_job_daemon import LONG_SEGMENT_NS, Treatment, listening, one_job
from bench.stage import NotMeasuredError, read_round, stage

ROUNDS = 3
GROUPS = 200
ADDED_LIMIT_NS = 50
CACHED_LIMIT_NS = 3_000
MAPPED_LIMIT_NS = 150_000
SIZES = ("small", "large")
JOBS = {
    "stays": Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False),
    "moves": Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False, swappable=True),
}

Rounds = dict[str, list[list[float]]]


def measure() -> dict[str, Any]:
    """Return the figures of both jobs in ns, and their bars."""
    rounds: dict[str, Rounds] = {name: defaultdict(list) for name in JOBS}
    cpu = max(os.sched_getaffinity(0))
    with stage() as place:
        env = {**place.shimmed(), "LD_LIBRARY_PATH": str(place.empty_driver())}
        command: list[str | Path] = [place.compile("allocs.cpp"), str(GROUPS), str(cpu)]
        with listening(place.attach_socket) as listener:
            for number in range(1, ROUNDS + 1):
                progress(f"allocs: round {number} of {ROUNDS}")
                for name, treatment in JOBS.items():
                    with place.running(command, env) as child, one_job(listener, treatment) as job:
                        read_round(child, rounds[name])
                    if job.records < GROUPS:
                        raise NotMeasuredError("a job wrote no records: it was not attached")
    figures = {job: _figures(found) for job, found in rounds.items()}
    return {"ns": figures, "bars": _bars(figures)}


def _figures(rounds: Rounds) -> dict[str, float]:
    return {name: round(smallest_median(values), 2) for name, values in rounds.items()}


def _bars(figures: dict[str, dict[str, float]]) -> dict[str, Bar]:
    stays, moves = figures["stays"], figures["moves"]
    doubt = _doubt(stays)
    return {
        **{
            f"{size}_added_ns": bar(
                stays[f"found_{size}"] - stays[f"bare_{size}"], ADDED_LIMIT_NS, doubt=doubt
            )
            for size in SIZES
        },
        "moved_small_ns": bar(moves["found_small"], CACHED_LIMIT_NS),
        "moved_large_ns": bar(moves["found_large"], MAPPED_LIMIT_NS),
    }


def _doubt(figures: dict[str, float]) -> str:
    if abs(figures["found_noise"] - figures["bare_noise"]) <= ADDED_LIMIT_NS / 4:
        return ""
    return "the machine is too busy: the same functions twice differ by a quarter of the budget"
