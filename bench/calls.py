"""What the shim adds to a call, by the class that calls.def gives it.

Measured on an empty driver, whose calls take no time: the software GPU answers an allocation after
a round trip of tens of microseconds, which would hide a few nanoseconds. A C program times the
driver's own functions (bare) and those that a program finds, as an attached job without a limit;
figures are the smallest of the medians. Calls that are not interposed add 0.

First one thread makes the calls, then several make the same calls at once, each on its own CPU and
stream. The latter is compared with as many processes at once, which share nothing but the machine
(two CPUs may be halves of one core): for OWN calls, the shim must add no more with threads than
with processes. Other calls must look at all streams of the process, or at its one allocation table.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.bars import Bar, bar, progress, show_bars, smallest_median
from bench.one_job_daemon import LONG_SEGMENT_NS, Treatment, listening, one_job
from bench.stage import NotMeasuredError, Stage, read_round, stage

ROUNDS = 5
GROUPS = 400
ADDED_LIMIT_NS = 50
LAUNCH_LIMIT_NS = 25
RATIO_LIMIT = 1.25
CALLS = (
    "launch",
    "graph",
    "copy",
    "copy_batch",  # four copies per call
    "copy_now",  # synchronous, to the host
    "memset",
    "memop",
    "host",
    "alloc",
    "pool",
    "vmm",
    "array",
    "event",
    "query",
    "sync",
    "capture",
)
OWN = ("launch", "graph", "copy", "copy_batch", "memset", "memop", "host", "event")

Rounds = dict[str, list[list[float]]]
Figures = dict[str, float]
Crew = tuple[str, Sequence[int]]  # "threads" of one process or "processes"; a CPU for each

WANTED = Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False)


def run(*, threads: int = 2) -> dict[str, Any]:
    """Measure with `threads` threads, print a table, return the result.

    Raises:
        NotMeasuredError: there are fewer CPUs than `threads`, or a program failed.
    """
    *_, result = results(threads=threads)
    print(f"added to a call on an empty driver, smallest of {ROUNDS} medians, ns;")
    print(f"_x{threads}_ratio: by {threads} threads to by {threads} processes at the same time")
    show_bars(result["bars"])
    return result


def results(*, threads: int) -> Iterator[dict[str, Any]]:
    """Like `run` without a table: after each round, yield the result of the rounds so far.

    Raises:
        NotMeasuredError: there are fewer CPUs than `threads`, or a program failed.
    """
    cpus = sorted(os.sched_getaffinity(0))[-threads:]
    if len(cpus) < threads:
        raise NotMeasuredError(f"{threads} threads want a CPU each; there are {len(cpus)}")
    crews = [("threads", cpus[-1:]), ("processes", cpus), ("threads", cpus)]
    for alone, processes, together in _measure(crews):
        yield _joined(alone, processes, together, threads)


def _joined(alone: Figures, processes: Figures, together: Figures, threads: int) -> dict[str, Any]:
    ratio = {name: round(_added(name, together) / _added(name, processes), 3) for name in CALLS}
    bars = {name: _bar(name, alone) for name in CALLS}
    bars |= {
        f"{name}_x{threads}_ratio": bar(ratio[name], RATIO_LIMIT, doubt=_doubt(together))
        for name in OWN
    }
    others = {
        "threads": threads,
        "processes": _result(processes),
        "ratio": ratio,
        **_result(together),
    }
    return {"bench": "calls", **_result(alone), "together": others, "bars": bars}


def _measure(crews: Sequence[Crew]) -> Iterator[list[Figures]]:
    """Measure each crew in turn; after every round, yield the figures of each."""
    rounds: list[Rounds] = [defaultdict(list) for _ in crews]
    with stage() as place:
        env = {**place.shimmed(), "LD_LIBRARY_PATH": str(place.empty_driver())}
        with listening(place.attach_socket) as listener:
            for number in range(1, ROUNDS + 1):
                progress(f"round {number} of {ROUNDS}")
                for crew, found in zip(crews, rounds, strict=True):
                    _round(place, env, listener, crew, found)
                yield [_figures(found) for found in rounds]


def _round(
    place: Stage, env: Mapping[str, str], listener: socket.socket, crew: Crew, rounds: Rounds
) -> None:
    kind, cpus = crew
    command: list[str | Path] = [place.compile("calls.cpp"), str(GROUPS), kind, *map(str, cpus)]
    with place.running(command, env) as child, ExitStack() as attached:
        count = len(cpus) if kind == "processes" else 1
        jobs = [attached.enter_context(one_job(listener, WANTED)) for _ in range(count)]
        read_round(child, rounds)
    if min(job.records for job in jobs) < GROUPS:
        raise NotMeasuredError("a job wrote no records: it was not attached")


def _figures(rounds: Rounds) -> Figures:
    return {name: smallest_median(values) for name, values in rounds.items()}


def _added(name: str, figures: Figures) -> float:
    return round(figures[f"found_{name}"] - figures[f"bare_{name}"], 2)


def _bar(name: str, figures: Figures) -> Bar:
    limit = LAUNCH_LIMIT_NS if name == "launch" else ADDED_LIMIT_NS
    return bar(_added(name, figures), limit, doubt=_doubt(figures))


def _doubt(figures: Figures) -> str:
    if abs(_added("noise", figures)) <= LAUNCH_LIMIT_NS / 2:
        return ""
    return "the machine is too busy: the same function twice differs by half the budget"


def _result(figures: Figures) -> dict[str, Any]:
    added = {name: _added(name, figures) for name in CALLS}
    measured = {name: round(value, 2) for name, value in figures.items()}
    return {"added_ns": added, "noise_ns": _added("noise", figures), **measured}
