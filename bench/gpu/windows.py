"""Part `windows`: a server beside a trainer that limits how much it has submitted.

No shim: what the driver itself makes of two processes. The server's kernels come by chance and wait
for nobody; the trainer keeps a number of its own submitted. Arms: time slices, with stream
priorities, MPS, MPS with a client priority. Every kernel says when it ran, so that slices and
switches can be told; for these, both also launch as fast as they can.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from bench.gpu.beliefs import Belief
from bench.gpu.mps import PRIORITY, mps
from bench.gpu.native import devices, kernels, program, talking
from bench.gpu.part import GPU, SERVER_LOAD, Bench, main, say
from bench.gpu.windows_figures import Told, both_figures, server_figures, together, verdict
from bench.gpu.windows_rows import Timeline, read_rows
from tandem.demo.place import Place
from tandem.demo.process import Message, Worker, WorkerError

UP_S, ORDER_S = 60.0, 30.0
LEAD_NS = 10_000_000  # both have their orders by then
SERVER, TRAINER = "server", "trainer"
LENGTHS = ("short", "long")
DEPTHS = {"depth1": 1, "depth4": 4, "depth16": 16, "none": 1024}
GAP_US = 50.0 / SERVER_LOAD


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How long kernels last and are measured. Off a GPU only to see that it works."""

    server_us: float = 50
    lengths_us: tuple[float, float] = (200, 5000)
    # Of as many blocks as the device holds at a time: in real programs blocks end all the while.
    waves: tuple[int, int] = (4, 100)
    seconds: float = 2.5
    alone_s: float = 1.2
    most_queued_us: float = 250_000  # of the trainer's work: all is waited for at the end


SMALL = Sizes(
    server_us=400,
    lengths_us=(800, 4000),
    waves=(2, 8),
    seconds=0.06,
    alone_s=0.05,
    most_queued_us=40_000,
)

_TURNS = "csrc/softgpu/device/turns.h"
BELIEFS = (
    Belief(
        question="How long does a process keep the GPU while another waits (us)?",
        believed="2 ms, or to the end of a kernel; a kernel of 5 ms is interrupted",
        used_by=(_TURNS, "docs/software-gpu.md"),
        answers=tuple(
            f"time.both.{length}.slice_us.trainer.{figure}"
            for length in LENGTHS
            for figure in ("median_us", "p99_us")
        ),
    ),
    Belief(
        question="What does a switch from one process to the other cost (us)?",
        believed="50",
        used_by=(_TURNS, "docs/software-gpu.md"),
        answers=(
            "time.both.short.switch_us.median_us",
            "time.both.long.switch_us.median_us",
            "time.both.long.switch_us.p99_us",
        ),
    ),
    Belief(
        question="What share of the server's running time did the trainer run as well?",
        believed="none with time slices, whatever the streams' priorities; much under MPS",
        used_by=(_TURNS, "daemon/tandemd/core/substrate.py"),
        answers=tuple(f"{arm}.short.none.overlap_share" for arm in ("time", "priorities", "mps")),
    ),
    Belief(
        question="By how much does a trainer that limits itself raise the server's p99?",
        believed="by little at depth 1 of 200 us, by a slice and more without a limit",
        used_by=("daemon/tandemd/core/model.py", "csrc/core/gate.cpp"),
        answers=(
            *(f"time.short.{depth}.p99_ratio" for depth in DEPTHS),
            *(f"time.long.{depth}.p99_ratio" for depth in DEPTHS),
            "verdict.exclusive_gating",
        ),
    ),
    Belief(
        question="What do stream priorities of two processes do with time slices?",
        believed="nothing: they order work within a process, and clients of one MPS server",
        used_by=(_TURNS,),
        answers=tuple(
            f"priorities.{length}.{depth}.p99_ratio"
            for length in LENGTHS
            for depth in ("depth1", "none")
        ),
    ),
    Belief(
        question="And MPS, without and with a lower client priority of the trainer?",
        believed="the server waits for blocks, not for kernels; with the priority for fewer",
        used_by=("csrc/softgpu/driver/context/mps.cpp",),
        answers=tuple(
            f"{arm}.{length}.{depth}.p99_ratio"
            for arm in ("mps", "mps_priority")
            for length in LENGTHS
            for depth in ("depth1", "none")
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How two processes share the device."""

    name: str
    place: Place
    priorities: tuple[str, str] = ("normal", "normal")  # of the server's stream, the trainer's
    of_trainer: Mapping[str, str]  # added to its environment


def measure(bench: Bench) -> dict[str, Any]:
    """Every arm by itself: one that fails is named, with what it had found."""
    image = kernels(bench, "work")
    figures: dict[str, Any] = {"mode": bench.place.mode}
    time_arm = Arm(name="time", place=bench.place, of_trainer={})
    for arm in (
        time_arm,
        replace(time_arm, name="priorities", priorities=("greatest", "least")),
    ):
        figures[arm.name] = _arm(bench, arm, image)
    with mps(bench) as (place, why):
        names = {"mps": {}, "mps_priority": {PRIORITY: "1"}}
        for name, added in names.items():
            if place is None:
                figures[name] = {"why_not": why}
                continue
            figures[name] = _arm(bench, Arm(name=name, place=place, of_trainer=added), image)
    arms = {name: found for name, found in figures.items() if isinstance(found, dict)}
    failed = [name for name, found in arms.items() if "error" in found]
    return {**figures, "verdict": verdict(arms), "ok": not failed or bench.where != GPU}


def _arm(bench: Bench, arm: Arm, image: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    try:
        with _pair(bench, arm, image) as pair:
            _measure_arm(pair, figures)
            pair.end()
    except WorkerError as failure:
        figures["error"] = str(failure)
    ratio = figures.get("short", {}).get("depth1", {}).get("p99_ratio")
    say(f"{arm.name}: {figures.get('error', f'p99 x {ratio} at depth 1')}")
    return figures


def _measure_arm(pair: Pair, figures: dict[str, Any]) -> None:
    sizes = pair.sizes
    alone = pair.run({SERVER: pair.open_loop()}, sizes.seconds)[SERVER]
    figures["server_alone"] = server_figures(alone)
    figures["kernels_us"] = pair.kernel_us
    figures["device_clock"] = pair.clock
    for length in LENGTHS:
        trainer = pair.closed_loop(length, DEPTHS["none"])
        own = pair.run({TRAINER: trainer}, sizes.alone_s)[TRAINER]
        figures[length] = {
            "alone_kernels_per_s": round(own.rate_per_s, 2),
        }
        for name, depth in DEPTHS.items():
            orders = {SERVER: pair.open_loop(), TRAINER: pair.closed_loop(length, depth)}
            told = pair.run(orders, sizes.seconds)
            figures[length][name] = together(told[SERVER], told[TRAINER], alone, own)
    figures["both"] = {}
    for length in LENGTHS:
        limit = DEPTHS["depth16"]
        orders = {
            SERVER: pair.closed_loop(SERVER, limit),
            TRAINER: pair.closed_loop(length, limit),
        }
        told = pair.run(orders, sizes.alone_s)
        figures["both"][length] = both_figures(told[SERVER], told[TRAINER])


@contextmanager
def _pair(bench: Bench, arm: Arm, image: Path) -> Iterator[Pair]:
    folder = bench.folder / arm.name
    env = devices(arm.place, folder / "gpu")
    with ExitStack() as stack:
        workers = {}
        for role, priority in zip((SERVER, TRAINER), arm.priorities, strict=True):
            own = {**env, **(arm.of_trainer if role == TRAINER else {})}
            command: list[str | Path] = [program(bench, "windows"), image, priority]
            workers[role] = stack.enter_context(talking(role, command, own, folder))
        up = {role: worker.wait_for("up", deadline_s=UP_S) for role, worker in workers.items()}
        sizes = Sizes() if bench.where == GPU else SMALL
        yield Pair(sizes, workers, up[SERVER], folder)


class Pair:
    """The two programs of an arm, which live through all of it."""

    def __init__(
        self, sizes: Sizes, workers: Mapping[str, Worker], up: Message, folder: Path
    ) -> None:
        """Calibrates the kernels, while nothing else runs."""
        self.sizes = sizes
        self._workers, self._folder = workers, folder
        path = folder / "gpu" / "timeline.jsonl"
        self._timeline = Timeline(path) if path.exists() else None
        self._shapes: dict[str, str] = {}
        self.kernel_us: dict[str, float] = {}
        told = self._compared(SERVER)
        self.clock = {"in_kernels": told["has_device_clock"], "step_ns": told["step_ns"]}
        sms, held = int(up["sms"]), max(1, int(up["threads_per_sm"]) // 1024)
        self._calibrate(SERVER, SERVER, f"{sms} 256", sizes.server_us)
        for length, waves, us in zip(LENGTHS, sizes.waves, sizes.lengths_us, strict=True):
            self._calibrate(TRAINER, length, f"{sms * held * waves} 1024", us)

    def open_loop(self) -> str:
        """The server's order: arrivals by chance."""
        gap_us = GAP_US * self.sizes.server_us / 50
        return f"{self._shapes[SERVER]} {DEPTHS['none']} {gap_us * 1e3:.0f}"

    def closed_loop(self, shape: str, depth: int) -> str:
        """An order to have as many submitted all the while, in reason."""
        most = max(DEPTHS["depth16"], int(self.sizes.most_queued_us / self.kernel_us[shape]))
        return f"{self._shapes[shape]} {min(depth, most)} 0"

    def run(self, orders: Mapping[str, str], seconds: float) -> dict[str, Told]:
        """Let them all begin together."""
        if self._timeline:
            self._timeline.new()  # what came before is nobody's
        compared = {role: self._compared(role) for role in orders}
        begin_ns = time.monotonic_ns() + LEAD_NS
        end_ns = begin_ns + int(seconds * 1e9)
        for role, order in orders.items():
            path = self._folder / f"{role}.rows"
            self._workers[role].tell(f"run {order} {begin_ns} {end_ns} {path}")
        said = {
            role: self._workers[role].wait_for("ran", deadline_s=seconds + ORDER_S)
            for role in orders
        }
        told = {
            role: self._told(role, {**compared[role], **message}, seconds)
            for role, message in said.items()
        }
        if self._timeline:
            ended = self._timeline.new()
            pids = {role: self._workers[role].pid for role in told}
            told = {r: replace(t, kernels=ended.get(pids[r], [])) for r, t in told.items()}
        return told

    def end(self) -> None:
        """Let both leave by themselves, as is proper for clients of MPS."""
        for worker in self._workers.values():
            worker.tell("end")
        for worker in self._workers.values():
            with suppress(TimeoutExpired):
                worker.wait(deadline_s=UP_S)

    def _told(self, role: str, message: Message, seconds: float) -> Told:
        rows = read_rows(self._folder / f"{role}.rows", int(message["offset_ns"]))
        return Told(
            rows=rows,
            kernels=[row.ran for row in rows],
            unfinished=int(message["unfinished"]),
            seconds=seconds,
            clock_error_us=float(message["error_ns"]) / 1e3,
            gaps_lost=int(message["gaps_lost"]),
        )

    def _compared(self, role: str) -> Message:
        """One after the other, so that none waits for the other's turn."""
        self._workers[role].tell("compare")
        return self._workers[role].wait_for("compared", deadline_s=ORDER_S)

    def _calibrate(self, role: str, name: str, grid: str, wanted_us: float) -> None:
        self._workers[role].tell(f"calibrate {grid} {wanted_us}")
        said = self._workers[role].wait_for("calibrated", deadline_s=ORDER_S)
        self.kernel_us[name] = round(float(said["kernel_us"]), 2)
        self._shapes[name] = f"{grid} {int(said['iterations'])}"


if __name__ == "__main__":
    main(measure)
