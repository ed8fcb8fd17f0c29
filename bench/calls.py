"""What the shim adds to a call, by the class that calls.def gives it.

On an empty driver, whose calls take no time: the software GPU answers an allocation after a round
trip of tens of microseconds, in which a few nanoseconds would not show. One C program times the
driver's own functions (bare) and those a program finds, attached, without a limit; smallest of the
medians. Calls that are not interposed cost nothing: 0.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.bars import bar, progress, show_bars, smallest_median
from bench.one_job_daemon import LONG_SEGMENT_NS, Treatment, listening, one_job
from bench.stage import HERE, NotMeasuredError, Stage, read_round, stage

ROUNDS = 5
GROUPS = 400
ADDED_LIMIT_NS = 50
LAUNCH_LIMIT_NS = 25
CALLS = (
    "launch",
    "graph",
    "copy",
    "copy_batch",  # four copies a call
    "copy_now",  # without a stream, to the host
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
WANTED = Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False)


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    rounds: dict[str, list[list[float]]] = defaultdict(list)
    with stage() as place:
        program = place.compile("calls.c")
        env = {**place.shimmed(), "LD_LIBRARY_PATH": str(_empty_driver(place))}
        with listening(place.attach_socket) as listener:
            for number in range(1, ROUNDS + 1):
                progress(f"round {number} of {ROUNDS}")
                with place.running([program, GROUPS], env) as child:
                    with one_job(listener, WANTED) as job:
                        read_round(child, rounds)
                    if job.records < GROUPS:
                        raise NotMeasuredError("the job wrote no records: it was not attached")
    figures = {name: smallest_median(values) for name, values in rounds.items()}
    added = {name: round(figures[f"found_{name}"] - figures[f"bare_{name}"], 2) for name in CALLS}
    bars = {
        name: bar(value, LAUNCH_LIMIT_NS if name == "launch" else ADDED_LIMIT_NS)
        for name, value in added.items()
    }
    print(f"added to a call on an empty driver, smallest of {ROUNDS} medians, ns")
    show_bars(bars)
    measured = {name: round(value, 2) for name, value in figures.items()}
    return {"bench": "calls", "added_ns": added, **measured, "bars": bars}


def _empty_driver(place: Stage) -> Path:
    """A folder with the empty libcuda.so.1."""
    folder = place.folder / "empty"
    folder.mkdir()
    compiler = shutil.which("g++")
    if compiler is None:
        raise NotMeasuredError("g++ is not installed")
    command = [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", *place.cuda_flags()]
    command += [str(HERE / "empty_driver.cpp"), "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, check=True)
    return folder
