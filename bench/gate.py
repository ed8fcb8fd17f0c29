"""From an opened gate to the next launch, and from a busy server to the last best-effort launch."""

from __future__ import annotations

import mmap
import statistics
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.bars import bar, show, show_bars
from bench.one_job_daemon import OneJob, listening
from bench.stage import stage

TRIALS = 200
HOLD_S = 0.005
BUSY_NS = 2_000_000
STAMPS = 1 << 16
RESUME_LIMIT_US = 150.0
LAST_LAUNCH_LIMIT_US = 5.0


class Stamps:
    """When the job's newest launches returned: the ring that gate.c writes."""

    def __init__(self, path: Path) -> None:
        size = 8 * (STAMPS + 1)
        path.write_bytes(b"\0" * size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)

    @property
    def count(self) -> int:
        """Launches so far."""
        return int(struct.unpack_from("<Q", self._map, 0)[0])

    def since(self, count: int) -> list[int]:
        """Stamps of the launches after the first `count`."""
        newest = range(max(count, self.count - STAMPS + 1), self.count)
        return [int(struct.unpack_from("<Q", self._map, 8 * (1 + i % STAMPS))[0]) for i in newest]


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place, listening(place.folder / "run" / "attach.sock") as listener:
        stamps = Stamps(place.folder / "stamps")
        command = [str(place.compile("gate.c")), str(place.kernels()), str(place.folder / "stamps")]
        child = subprocess.Popen(command, env=place.shimmed(TANDEM_PRIORITY="batch"))
        try:
            connection, _ = listener.accept()
            job = OneJob(connection)
            figures = _measure(job, stamps)
            job.close()
        finally:
            child.kill()
            child.wait()
    bars = {
        "resume_us": bar(figures["resume_us"], RESUME_LIMIT_US),
        "resume_after_busy_us": bar(figures["resume_after_busy_us"], RESUME_LIMIT_US),
        "last_launch_us": bar(figures["last_launch_us"], LAST_LAUNCH_LIMIT_US),
    }
    print(f"gate, medians of {TRIALS} trials")
    show(figures, "us")
    show_bars(bars)
    return {"bench": "gate", **figures, "bars": bars}


def _measure(job: OneJob, stamps: Stamps) -> dict[str, float]:
    while stamps.count < 1000:
        time.sleep(0.01)
    resumes = [_resume_ns(job, stamps) for _ in range(TRIALS)]
    lasts, returns = zip(*(_yield_ns(job, stamps) for _ in range(TRIALS)), strict=True)
    return {
        "resume_us": statistics.median(resumes) / 1e3,
        "resume_p99_us": statistics.quantiles(resumes, n=100)[98] / 1e3,
        "last_launch_us": statistics.median(lasts) / 1e3,
        "last_launch_p99_us": statistics.quantiles(lasts, n=100)[98] / 1e3,
        "resume_after_busy_us": statistics.median(returns) / 1e3,
    }


def _resume_ns(job: OneJob, stamps: Stamps) -> int:
    """From opening the gate to the first launch that returned after it."""
    job.process.set_gate(hold=True)
    time.sleep(HOLD_S)
    seen = stamps.count
    opened_ns = job.open_gate()
    while stamps.count == seen:
        time.sleep(0.0005)
    return stamps.since(seen)[0] - opened_ns


def _yield_ns(job: OneJob, stamps: Stamps) -> tuple[int, int]:
    """From busy to the last launch before the pause, and from its end to the first one after."""
    time.sleep(HOLD_S)
    seen = stamps.count
    began_ns = job.busy_for(BUSY_NS)
    over_ns = began_ns + BUSY_NS
    time.sleep(2.5 * BUSY_NS / 1e9)
    times = stamps.since(seen)
    while not times or times[-1] < over_ns:
        time.sleep(0.0005)
        times = stamps.since(seen)
    last_ns = max((t for t in times if t < over_ns), default=began_ns)
    first_ns = min(t for t in times if t >= over_ns)
    return max(last_ns - began_ns, 0), first_ns - over_ns
