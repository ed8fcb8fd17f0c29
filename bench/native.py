"""Performance of the daemon's native part: telemetry drained per second, cost of idle processes."""

from __future__ import annotations

import mmap
import resource
import statistics
import struct
import time
from typing import Any

from bench.bars import bar, progress, show, show_bars
from tandem import _native

PROCESSES = 100
DRAIN_LIMIT_PER_S = 2_000_000
IDLE_LIMIT_RATIO = 0.01
ROUNDS = 7
IDLE_SECONDS = 4.0

# Offsets of csrc/core/shm_layout.h.
RING_HEADERS, RINGS, RING_BYTES, RING_COUNT = 5 * 4096, 6 * 4096, 65536, 17
STATE_BYTES = RINGS + RING_COUNT * RING_BYTES
RECORDS = RING_BYTES // 64


def _full_rings(process: _native.Process) -> mmap.mmap:
    state = mmap.mmap(process.fds[1], STATE_BYTES)
    record = struct.pack("<QBBHIQQQIIQQ", 0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8)
    for ring in range(RING_COUNT):
        place = RINGS + ring * RING_BYTES
        state[place : place + RING_BYTES] = record * RECORDS
    return state


def drain_per_s() -> float:
    """Records per second from all rings of one process into Python; median of the rounds."""
    process = _native.Process(process_id=1, job_id=1)
    poller = _native.Poller()
    poller.add(process, group=1)
    poller.drain_records()
    state = _full_rings(process)
    rates = []
    head = 0
    for _ in range(ROUNDS):
        drained, spent_s = 0, 0.0
        for _ in range(50):
            head += RECORDS - 1
            for ring in range(RING_COUNT):
                struct.pack_into("<Q", state, RING_HEADERS + ring * 64, head)
            start = time.perf_counter()
            poller.poll(now_ns=head)
            drained += sum(len(packed) for _, packed in poller.drain_records()) // 64
            spent_s += time.perf_counter() - start
        rates.append(drained / spent_s)
    state.close()
    process.close()
    return statistics.median(rates)


def _busy_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def idle_cpu_ratio() -> float:
    """Share of a core that both native threads use with idle processes."""
    processes = [_native.Process(process_id=i, job_id=i) for i in range(PROCESSES)]
    poller = _native.Poller()
    for process in processes:
        poller.add(process, group=process.process_id)
    poller.start()
    poller.wait(timeout_ns=500_000_000)  # until the polling period has grown
    before_s, start = _busy_s(), time.monotonic()
    poller.wait(timeout_ns=int(IDLE_SECONDS * 1e9))
    ratio = (_busy_s() - before_s) / (time.monotonic() - start)
    poller.stop()
    for process in processes:
        process.close()
    return ratio


def round_us() -> float:
    """Microseconds for one polling round over idle processes, warm; median of the rounds."""
    processes = [_native.Process(process_id=i, job_id=i) for i in range(PROCESSES)]
    poller = _native.Poller()
    for process in processes:
        poller.add(process, group=process.process_id)
    costs = []
    for now_ns in range(1, 500):
        start = time.perf_counter()
        poller.poll(now_ns=now_ns)
        costs.append(time.perf_counter() - start)
    return statistics.median(costs) * 1e6


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    progress("draining full rings, then looking at idle processes")
    figures = {
        "drain_records_per_s": round(drain_per_s()),
        "idle_cpu_ratio": round(idle_cpu_ratio(), 5),
        "round_us": round(round_us(), 2),
    }
    bars = {
        # budget / measured, so that lower is better as for every other bar
        "drain_budget_ratio": bar(DRAIN_LIMIT_PER_S / figures["drain_records_per_s"], 1.0),
        "idle_cpu_ratio": bar(figures["idle_cpu_ratio"], IDLE_LIMIT_RATIO),
    }
    print(f"native, {PROCESSES} idle processes")
    show(figures, "")
    show_bars(bars)
    return {"bench": "native", "processes": PROCESSES, **figures, "bars": bars}
