"""What the daemon costs with 100 attached processes that do nothing."""

from __future__ import annotations

import time
from typing import Any

import psutil

from bench.bars import bar, show, show_bars
from bench.crowd import crowd
from bench.stage import stage

COUNT = 100
SETTLE_S = 2.0
MEASURE_S = 10.0
CPU_LIMIT_RATIO = 0.01
RESIDENT_LIMIT_MIB = 80.0


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place, place.daemon() as daemon, crowd(place, COUNT) as result:
        process = psutil.Process(daemon.pid)
        time.sleep(SETTLE_S)
        before, start = process.cpu_times(), time.monotonic()
        time.sleep(MEASURE_S)
        after, end = process.cpu_times(), time.monotonic()
        used = (after.user - before.user) + (after.system - before.system)
        # Pages of the rings are shared memory: counted where they are in use, as the budget says.
        memory = process.memory_info()
    figures = {
        "processes": result.attached,
        "cpu_ratio": round(used / (end - start), 5),
        "resident_mib": round((memory.rss - memory.shared) / 2**20, 2),
        "resident_with_shared_mib": round(memory.rss / 2**20, 2),
    }
    bars = {
        "cpu_ratio": bar(figures["cpu_ratio"], CPU_LIMIT_RATIO),
        "resident_with_shared_mib": bar(figures["resident_with_shared_mib"], RESIDENT_LIMIT_MIB),
    }
    print(f"idle, {result.attached} attached processes, {MEASURE_S:g} s")
    show(figures, "")
    show_bars(bars)
    return {"bench": "idle", **figures, "bars": bars}
