"""What the daemon costs with 100 attached processes that do nothing."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import psutil

from bench.bars import bar, progress, show, show_bars
from bench.crowd import crowd
from bench.stage import NotMeasuredError, stage

COUNT = 100
SETTLE_S = 2.0
ROUNDS = 3
ROUND_S = 5.0
CPU_LIMIT_RATIO = 0.01
RESIDENT_LIMIT_MIB = 80.0


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place, place.daemon() as daemon, crowd(place, COUNT) as result:
        process = psutil.Process(daemon.pid)
        time.sleep(SETTLE_S)
        ratios = []
        for number in range(1, ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}, {ROUND_S:g} s each")
            ratios.append(_cpu_ratio(process))
            _check(daemon, process)
        memory = process.memory_info()
    attached = result.attached
    figures = {
        "processes": attached,
        "cpu_ratio": round(min(ratios), 5),
        "cpu_worst_ratio": round(max(ratios), 5),
        # Pages of the rings are shared memory; the budget counts those in use.
        "resident_mib": round((memory.rss - memory.shared) / 2**20, 2),
        "resident_with_shared_mib": round(memory.rss / 2**20, 2),
    }
    doubt = "" if attached == COUNT else f"only {attached} of {COUNT} processes attached"
    bars = {
        "cpu_ratio": bar(figures["cpu_ratio"], CPU_LIMIT_RATIO, doubt=doubt),
        "resident_with_shared_mib": bar(
            figures["resident_with_shared_mib"], RESIDENT_LIMIT_MIB, doubt=doubt
        ),
    }
    print(f"idle, {attached} attached processes, smallest of {ROUNDS} times {ROUND_S:g} s")
    show(figures, "")
    show_bars(bars)
    return {"bench": "idle", **figures, "bars": bars}


def _cpu_ratio(process: psutil.Process) -> float:
    before_ns, start_ns = _cpu_ns(process.pid), time.monotonic_ns()
    time.sleep(ROUND_S)
    return (_cpu_ns(process.pid) - before_ns) / (time.monotonic_ns() - start_ns)


def _cpu_ns(pid: int) -> int:
    """CPU time as accounted by the kernel's scheduler; ticks are too coarse for 1 % of a core."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def _check(daemon: subprocess.Popen[str], process: psutil.Process) -> None:
    """Raise NotMeasuredError unless the measured process is the daemon, still running."""
    if daemon.poll() is not None:
        raise NotMeasuredError(f"tandemd ended with code {daemon.returncode}")
    if process.memory_info().rss == 0 or "tandemd" not in " ".join(process.cmdline()):
        raise NotMeasuredError(f"process {process.pid} is not tandemd: {process.status()}")
