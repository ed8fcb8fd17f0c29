"""The two programs of the part `windows`, a server and a trainer, which obey orders."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from bench.gpu.figures.windows_figures import Told
from bench.gpu.figures.windows_rows import Timeline, best_clock, read_rows
from bench.gpu.harness.children import talking
from bench.gpu.harness.native import command
from bench.gpu.harness.part import GPU, SERVER_LOAD, Bench
from tandem.demo.place import Place
from tandem.demo.process import Message, Worker

UP_S, ORDER_S = 25.0, 15.0
LEAD_NS = 10_000_000  # before a run begins, so that both have their orders by then
SERVER, TRAINER = "server", "trainer"
LENGTHS = ("short", "long")
DEPTHS = {"depth1": 1, "depth4": 4, "depth16": 16, "none": 1024}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How long kernels last and are measured; without a GPU, just enough to see that it works."""

    server_us: float = 50
    lengths_us: tuple[float, float] = (200, 5000)
    # A wave is as many blocks as the device holds. Several, since in real programs blocks end all
    # the time.
    waves: tuple[int, int] = (4, 100)
    seconds: float = 1.3
    alone_s: float = 0.8
    most_queued_us: float = 250_000  # of the trainer's work, all of which must end after the run


SMALL = Sizes(
    server_us=200,
    lengths_us=(400, 800),
    waves=(2, 8),
    seconds=0.02,
    alone_s=0.02,
    most_queued_us=10_000,
)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How two processes share the device."""

    name: str
    priorities: tuple[str, str] = ("normal", "normal")  # of the server's and the trainer's stream
    of_trainer: Mapping[str, str] = field(default_factory=dict)  # added to its environment


@contextmanager
def pair_of(bench: Bench, place: Place, arm: Arm) -> Iterator[Pair]:
    """Run both programs until the block ends.

    Raises:
        WorkerError: one of them does not come up.
    """
    folder = bench.folder / arm.name
    folder.mkdir(exist_ok=True)
    env = place.env(folder / "gpu")
    with ExitStack() as stack:
        workers = {}
        for role, priority in zip((SERVER, TRAINER), arm.priorities, strict=True):
            own = {**env, **(arm.of_trainer if role == TRAINER else {})}
            order = command(bench, "windows", "work", priority)
            workers[role] = stack.enter_context(talking(bench, order, own, role=role))
        up = {role: worker.wait_for("up", deadline_s=UP_S) for role, worker in workers.items()}
        sizes = Sizes() if bench.where == GPU else SMALL
        pair = Pair(sizes, workers, up[SERVER], folder)
        yield pair
        pair.end()


class Pair:
    """The two programs of an arm; they run for all of it unless a step fails."""

    def __init__(
        self, sizes: Sizes, workers: Mapping[str, Worker], up: Message, folder: Path
    ) -> None:
        """Calibrate the kernels while nothing else runs."""
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
        """The server's order: random arrivals."""
        gap_ns = self.sizes.server_us / SERVER_LOAD * 1e3
        return f"{self._shapes[SERVER]} {DEPTHS['none']} {gap_ns:.0f}"

    def closed_loop(self, shape: str, depth: int) -> str:
        """An order to keep that many kernels submitted, limited by `most_queued_us`."""
        most = max(DEPTHS["depth16"], int(self.sizes.most_queued_us / self.kernel_us[shape]))
        return f"{self._shapes[shape]} {min(depth, most)} 0"

    def run(self, orders: Mapping[str, str], seconds: float) -> dict[str, Told]:
        """Let the programs begin together; return what each reports."""
        if self._timeline:
            self._timeline.new()  # drops earlier kernels
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
        clock = best_clock(compared.values())
        told = {role: self._told(role, clock, message, seconds) for role, message in said.items()}
        if self._timeline:
            ended = self._timeline.new()
            pids = {role: self._workers[role].pid for role in told}
            told = {r: replace(t, kernels=ended.get(pids[r], [])) for r, t in told.items()}
        return told

    def end(self) -> None:
        """Let both exit by themselves, as MPS clients should."""
        for worker in self._workers.values():
            worker.tell("end")
        for worker in self._workers.values():
            with suppress(TimeoutExpired):
                worker.wait(deadline_s=UP_S)

    def _told(self, role: str, clock: Mapping[str, Any], message: Message, seconds: float) -> Told:
        rows = read_rows(self._folder / f"{role}.rows", int(clock["offset_ns"]))
        return Told(
            rows=rows,
            kernels=[row.ran for row in rows],
            unfinished=int(message["unfinished"]),
            seconds=seconds,
            clock_error_us=float(clock["error_ns"]) / 1e3,
            gaps_lost=int(message["gaps_lost"]),
            deepest=int(message["deepest"]),
            longest_call_us=float(message["longest_call_us"]),
        )

    def _compared(self, role: str) -> Message:
        """Compare clocks, in one program at a time so that none waits for the other's turn."""
        self._workers[role].tell("compare")
        return self._workers[role].wait_for("compared", deadline_s=ORDER_S)

    def _calibrate(self, role: str, name: str, grid: str, wanted_us: float) -> None:
        self._workers[role].tell(f"calibrate {grid} {wanted_us}")
        said = self._workers[role].wait_for("calibrated", deadline_s=ORDER_S)
        self.kernel_us[name] = round(float(said["kernel_us"]), 2)
        self._shapes[name] = f"{grid} {int(said['iterations'])}"
