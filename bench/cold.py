"""What the shim adds to a launch whose code and data have been evicted from the first caches.

`launch` times launches in a loop, where all of the shim stays in the CPU's fastest caches. A real
launch follows work of a framework and a driver, which evicts most of it: on an H200's host it cost
twenty times as much (docs/adr/0014). So this measurement, on the empty driver, executes 256 KiB of
other code and touches 64 KiB of other data between launches. A fence after each launch waits for
its stores, as a driver's write to the card's doorbell does. Figures are the smallest of the
medians.

    passthrough      the shim loaded and switched off
    full             attached, gate open, telemetry on and read by the poller on another CPU

The budget is for launches in a loop; on a GPU, torch's throughput is what counts. The limit here is
what a launch took before its whole path was one piece of code, to notice if that is lost again.
"""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.bars import bar, progress, show, show_bars, smallest_median
from bench.one_job_daemon import LONG_SEGMENT_NS, Treatment, listening, one_job
from bench.stage import NotMeasuredError, read_round, stage

ROUNDS = 7
LAUNCHES = 4000
ADDED_LIMIT_NS = 400
WANTED = Treatment(segment_ns=LONG_SEGMENT_NS, has_peer=False)

Rounds = dict[str, list[list[float]]]


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    if platform.machine() != "x86_64":
        raise NotMeasuredError("the code that runs between two launches is that of x86-64")
    cpus = os.sched_getaffinity(0)
    cpu = max(cpus)
    if len(cpus) > 1:
        os.sched_setaffinity(0, cpus - {cpu})  # every child but the measured program inherits this
    plain: Rounds = defaultdict(list)
    attached: Rounds = defaultdict(list)
    with stage() as place:
        env = {**place.shimmed(), "LD_LIBRARY_PATH": str(place.empty_driver())}
        command: list[str | Path] = [place.compile("cold.cpp"), str(LAUNCHES), str(cpu)]
        for number in range(1, ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            with place.running(command, {**env, "TANDEM_DISABLE": "1"}) as child:
                read_round(child, plain)
            with (
                listening(place.attach_socket) as listener,
                place.running(command, env) as child,
                one_job(listener, WANTED) as job,
            ):
                read_round(child, attached)
            if job.records < LAUNCHES:
                raise NotMeasuredError("the job wrote no records: it was not attached")
    figures = {
        "bare_ns": round(smallest_median(attached["bare"]), 1),
        "passthrough_added_ns": _added_ns(plain),
        "added_ns": _added_ns(attached),
    }
    print(f"launch among other code, smallest of {ROUNDS} interleaved medians, on CPU {cpu}")
    show(figures, "ns")
    bars = {"added_ns": bar(figures["added_ns"], ADDED_LIMIT_NS)}
    show_bars(bars)
    ratio = round(figures["added_ns"] / figures["passthrough_added_ns"], 3)
    return {"bench": "cold", **figures, "ratios": {"full_to_passthrough": ratio}, "bars": bars}


def _added_ns(rounds: Rounds) -> float:
    return round(smallest_median(rounds["found"]) - smallest_median(rounds["bare"]), 1)
