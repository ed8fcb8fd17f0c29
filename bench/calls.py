"""What the shim adds to calls that give the GPU nothing to do: allocate, free, record, synchronise.

On an empty driver, whose calls take no time: the software GPU answers an allocation after a round
trip of tens of microseconds, in which a few nanoseconds would not show. One C program times the
driver's own functions (bare) and those a program finds, attached, without a limit; smallest of the
medians.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.bars import bar, progress, show, show_bars, smallest_median
from bench.one_job_daemon import LONG_SEGMENT_NS, Treatment, listening, one_job
from bench.stage import HERE, NotMeasuredError, Stage, read_round, stage

ROUNDS = 5
GROUPS = 400
ADDED_LIMIT_NS = 50
CALLS = ("alloc_free", "event", "sync")
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
    for name in CALLS:
        figures[f"{name}_added_ns"] = figures[f"found_{name}"] - figures[f"bare_{name}"]
    figures = {name: round(value, 2) for name, value in figures.items()}
    bars = {name: bar(figures[f"{name}_added_ns"], ADDED_LIMIT_NS) for name in CALLS}
    print(f"calls on an empty driver, smallest of {ROUNDS} medians")
    show(figures, "ns")
    show_bars(bars)
    return {"bench": "calls", **figures, "bars": bars}


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
