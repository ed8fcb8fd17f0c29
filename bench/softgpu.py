"""The software GPU itself: the cost of a launch, its rate of kernels, its memory.

The client is a C program, run once or many times at once. Launches are timed on the real clock, in
small groups while the queue has room; the figure is the smallest median of the rounds. Rates are
kernels completed per second of real time on the virtual clock, from the first launch of any client
to the end of the last kernel; best of the rounds. Memory is the device process's while every client
has thousands of operations pending.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.bars import bar, progress, show, show_bars, smallest_median
from bench.stage import NotMeasuredError, Stage, expect, stage, tell

LAUNCH_LIMIT_NS = 1000
KERNEL_LIMIT_US = 5.0  # 200,000 a second
MEMORY_LIMIT_MIB = 100.0
ROUNDS = 3
GROUPS = 400
KERNELS = 200_000  # sum over all clients
REAL_KERNELS = 20_000
CROWD = 64
CROWD_SIZES = (1, 4, CROWD)
PENDING = 10_000
RUN_S = 40.0


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    with stage() as place:
        figures = {"launch_ns": _launch_ns(place)}
        lost = 0
        for clock in ("virtual", "real"):
            for count in CROWD_SIZES if clock == "virtual" else (CROWD,):
                progress(f"{count} clients on the {clock} clock")
                done, kernel_us = _rate(place, clock, count)
                figures[f"{clock}_{count}_kernels_per_s"] = 1e6 / kernel_us
                figures[f"{clock}_{count}_kernel_us"] = kernel_us
                lost += count - done
        figures["lost_clients"] = lost
        progress(f"{CROWD} clients with {PENDING} operations pending each")
        figures |= _memory_mib(place)
    figures = {name: round(value, 3) for name, value in figures.items()}
    bars = {
        "launch_ns": bar(figures["launch_ns"], LAUNCH_LIMIT_NS),
        **{
            name: bar(figures[name], KERNEL_LIMIT_US)
            for name in (f"virtual_{count}_kernel_us" for count in CROWD_SIZES)
        },
        "lost_clients": bar(lost, 0),
        "resident_mib": bar(figures["resident_mib"], MEMORY_LIMIT_MIB),
    }
    print(f"softgpu, best of {ROUNDS} rounds")
    show(figures, "")
    show_bars(bars)
    return {"bench": "softgpu", **figures, "bars": bars}


def _launch_ns(place: Stage) -> float:
    rounds = []
    for number in range(1, ROUNDS + 1):
        progress(f"launches, round {number} of {ROUNDS}")
        with _clients(place, "real", 1, "launch", GROUPS) as (child,):
            rounds.append([float(line) for line in _go(child).split()])
    return smallest_median(rounds)


def _rate(place: Stage, clock: str, count: int) -> tuple[int, float]:
    """The number of clients that completed, and microseconds per kernel, best of the rounds."""
    # The real clock does not skip the 50 us of each context switch.
    each = (KERNELS if clock == "virtual" else REAL_KERNELS) // count
    best, done = float("inf"), count
    for _ in range(ROUNDS if clock == "virtual" else 1):
        with _clients(place, clock, count, "rate", each) as children:
            start = time.monotonic()
            for child in children:
                tell(child)
            ended = sum(_output(child) != "" for child in children)
            best = min(best, (time.monotonic() - start) / (each * count) * 1e6)
            done = min(done, ended)
    return done, best


def _memory_mib(place: Stage) -> dict[str, float]:
    with _clients(place, "real", CROWD, "hold", PENDING) as children:
        device = psutil.Process(_device_pid(place.folder / "gpu" / "softgpu.sock"))
        before = device.memory_info().rss / 2**20
        for child in children:
            tell(child)
        for child in children:
            expect(child, "pending")
        queued = device.memory_info().rss / 2**20
        return {"resident_without_work_mib": before, "resident_mib": queued}


@contextmanager
def _clients(
    place: Stage, clock: str, count: int, what: str, amount: int
) -> Iterator[Sequence[subprocess.Popen[str]]]:
    """Start `count` clients one after the other on their own device; they are ready to begin."""
    env = {
        **place.env,
        "TANDEM_SOFTGPU_CLOCK": clock,
        "TANDEM_SOFTGPU_LINGER_MS": "0",
        "TANDEM_SOFTGPU_QUEUE": str(PENDING + 100 if what == "hold" else 1024),
    }
    command: list[str | Path] = [place.compile("softgpu.cpp"), place.kernels(), what, str(amount)]
    _await_end(place.folder / "gpu" / "softgpu.sock")
    with ExitStack() as running:
        children = []
        for _ in range(count):
            child = running.enter_context(place.running(command, env))
            expect(child, "ready")
            children.append(child)
        yield children


def _await_end(path: Path) -> None:
    """Wait until the previous device process has gone; the first client of a new one sets it up."""
    end = time.monotonic() + RUN_S
    while path.exists():
        if time.monotonic() > end:
            raise NotMeasuredError("the device process does not end")
        time.sleep(0.01)


def _device_pid(path: Path) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("iII", credentials)[0])


def _output(child: subprocess.Popen[str]) -> str:
    """Return what the client prints until it ends; nothing if it failed."""
    output, _ = child.communicate(timeout=RUN_S)
    return output if child.returncode == os.EX_OK else ""


def _go(child: subprocess.Popen[str]) -> str:
    tell(child)
    return _output(child)
