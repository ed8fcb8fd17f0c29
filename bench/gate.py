"""From an opened gate to the next launch, and from a busy server to the last best-effort launch.

Both start in the middle of a burst of launches, so that there is something to hold back. A thread
of the job's own program (gate.cpp) plays the busy server, since Python would add delays of its own.
"""

from __future__ import annotations

import mmap
import os
import statistics
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.bars import bar, progress, show, show_bars
from bench.one_job_daemon import OneJob, Treatment, listening, one_job
from bench.stage import NotMeasuredError, next_line, stage, tell

ROUNDS = 5
TRIALS = 40
HOLD_S = 0.005
PATIENCE_S = 5.0
STAMPS = 1 << 16
RESUME_LIMIT_US = 150.0
LAST_LAUNCH_LIMIT_US = 5.0
CAUGHT_AT_LEAST = 0.5  # of the trials


class Stamps:
    """The times when the job's newest launches returned, in the ring that gate.cpp writes."""

    def __init__(self, path: Path) -> None:
        size = 8 * (STAMPS + 1)
        path.write_bytes(b"\0" * size)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)

    @property
    def count(self) -> int:
        """The number of launches so far."""
        return int(struct.unpack_from("<Q", self._map, 0)[0])

    def at_ns(self, number: int) -> int:
        """The time when the launch of that number returned."""
        return int(struct.unpack_from("<Q", self._map, 8 * (1 + number % STAMPS))[0])

    def wait_beyond(self, count: int) -> None:
        """Wait until there are more than `count` launches."""
        end = time.monotonic() + PATIENCE_S
        while self.count <= count:
            if time.monotonic() > end:
                raise NotMeasuredError(f"the job launched nothing for {PATIENCE_S:g} s")
            time.sleep(0.0005)


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place, place.device(), listening(place.attach_socket) as listener:
        path = place.folder / "stamps"
        stamps = Stamps(path)
        command = [place.compile("gate.cpp"), place.kernels(), path]
        with (
            place.running(command, place.shimmed(TANDEM_PRIORITY="batch")) as child,
            one_job(listener, Treatment()) as job,
        ):
            stamps.wait_beyond(1000)
            resumes = _resumes_ns(job, stamps)
            lasts, returns = _yields_ns(job, child)
    caught = sum(last > 0 for one in lasts for last in one) / (ROUNDS * TRIALS)
    figures = {
        "resume_us": _smallest(resumes, 50),
        "resume_p99_us": _smallest(resumes, 99),
        "resume_after_busy_us": _smallest(returns, 50),
        "last_launch_us": _smallest(lasts, 50),
        "last_launch_p95_us": _smallest(lasts, 95),
        "last_launch_p99_us": _smallest(lasts, 99),
        "last_launch_worst_us": max(max(one) for one in lasts) / 1e3,
    }
    # If no launch was under way when the server became busy, the last one proves nothing.
    doubt = "" if caught >= CAUGHT_AT_LEAST else "most trials missed the job's bursts"
    bars = {
        "resume_us": bar(figures["resume_us"], RESUME_LIMIT_US),
        "resume_after_busy_us": bar(figures["resume_after_busy_us"], RESUME_LIMIT_US),
        "last_launch_p95_us": bar(figures["last_launch_p95_us"], LAST_LAUNCH_LIMIT_US, doubt=doubt),
    }
    print(f"gate, smallest figure of {ROUNDS} rounds of {TRIALS} trials")
    show(figures, "us")
    show({"caught_ratio": caught}, "of the trials had a launch under way")
    show_bars(bars)
    return {"bench": "gate", **figures, "caught_ratio": round(caught, 4), "bars": bars}


def _smallest(rounds: list[list[int]], percent: int) -> float:
    """The smallest of the rounds' percentiles, in microseconds."""
    found = min(statistics.quantiles(one, n=100, method="inclusive")[percent - 1] for one in rounds)
    return round(found / 1e3, 3)


def _resumes_ns(job: OneJob, stamps: Stamps) -> list[list[int]]:
    found = []
    for number in range(1, ROUNDS + 1):
        progress(f"opened gate, round {number} of {ROUNDS}")
        found.append([_resume_ns(job, stamps) for _ in range(TRIALS)])
    return found


def _resume_ns(job: OneJob, stamps: Stamps) -> int:
    """Measure from opening the gate to the return of the first launch after it."""
    job.process.set_gate(hold=True)
    job.await_waiting(PATIENCE_S)
    time.sleep(HOLD_S)  # long enough for the deepest kind of wait
    seen = stamps.count
    opened_ns = job.open_gate()
    stamps.wait_beyond(seen)
    return stamps.at_ns(seen) - opened_ns


def _yields_ns(
    job: OneJob, child: subprocess.Popen[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Measure from busy to the last launch before the pause, and from its end to the next one."""
    path = f"/proc/{os.getpid()}/fd/{job.peer_presence_fd}"
    tell(child, f"{path} {ROUNDS * TRIALS}")
    lasts, firsts = [], []
    for number in range(1, ROUNDS + 1):
        progress(f"busy server, round {number} of {ROUNDS}")
        pairs = [next_line(child).split() for _ in range(TRIALS)]
        if [] in pairs:
            raise NotMeasuredError("the job ended")
        lasts.append([int(last) for last, _ in pairs])
        firsts.append([int(first) for _, first in pairs])
    return lasts, firsts
