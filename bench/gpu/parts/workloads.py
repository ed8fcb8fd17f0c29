"""Part `workloads`: how fast programs run under Tandem, and whether results are the same.

A row is a program (bench/gpu/programs) in three processes: bare, managed, and managed with
TANDEM_OBSERVE=1, which records but neither gates nor marks. Managed processes have a daemon each,
so none is held for another. The processes compute in turns, each round in another order, so that
drift of the machine affects all alike. The observed one opens the device first, so that filling
caches counts for neither of the other two's start-up.
Before all rows, a program launches an empty kernel and reports the time this took its thread. Timed
rows come next, then, several at a time, those of which only the results count. A row that fails or
hangs is ended and says so; the others continue. A dry run judges only the programs' results.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu.figures.workload_rows import (
    BARE,
    MANAGED,
    MODES,
    NOT_RUN,
    OBSERVED,
    Row,
    Run,
    beside,
    needs_another,
    not_run,
    order_of,
    row_of,
)
from bench.gpu.harness import children, sources
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.part import GPU, Bench, main, progress, say
from bench.gpu.harness.questions import all_answered, answered
from bench.gpu.harness.ways import command_of, environment_of
from bench.gpu.parts.launches import launch_latency
from tandem.demo.process import Message, Worker, WorkerError

BUDGET_S = 320.0  # for all rows; those not begun by then are not run
ROW_S = 60.0
RESERVE_S = 20.0  # the time of most rows; one that takes longer is ended, and is the last
ROUND_S, DRY_ROUND_S = 0.4, 0.01
JUDGED_ROUNDS = 9
COLD_S = 100.0  # when the libraries are read from the disk for the first time
END_S = 15.0
AT_A_TIME = 5  # rows of which only the results count; each has three processes and two daemons
EVENTS = {"TANDEM_MARKERS": "event"}  # instead of memory operations, for the same segments


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The definition of a row."""

    program: str  # of programs.SOURCES
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()  # of `tandem run`
    limit: float | None = None  # lowest managed/bare throughput accepted
    seconds: float = ROW_S  # time limit
    rounds: int = 3  # how often each process computes, if no figure is judged
    is_timed: bool = False  # its speed matters even without a limit, so it needs quiet

    @property
    def needs_quiet(self) -> bool:
        """Whether nothing may run beside it."""
        return self.is_timed or self.limit is not None

    @property
    def all_rounds(self) -> int:
        """The number of rounds, a multiple of the number of orders."""
        return self.rounds if self.limit is None else JUDGED_ROUNDS


def _allocator(settings: str) -> dict[str, str]:
    """Set both of torch's variables for it; the program checks that torch uses the settings."""
    return {"PYTORCH_ALLOC_CONF": settings, "PYTORCH_CUDA_ALLOC_CONF": settings}


WORKLOADS = {
    "cuda_bindings": Workload(program="cuda_bindings"),
    "eager": Workload(program="eager", limit=0.97),
    "vision": Workload(program="vision", limit=0.97),
    "language": Workload(program="language", limit=0.97),
    "graph": Workload(program="graph", limit=0.99),
    "compiled": Workload(program="compiled", limit=0.99, seconds=COLD_S),
    # With the default allocator: the baseline of the two below.
    "allocations": Workload(program="allocations", is_timed=True),
    "expandable_segments": Workload(
        program="allocations",
        environment=_allocator("expandable_segments:True"),
        is_timed=True,
    ),
    "malloc_async": Workload(
        program="allocations",
        environment=_allocator("backend:cudaMallocAsync"),
        is_timed=True,
    ),
    "swappable": Workload(program="vision", options=("--swappable",), rounds=6, is_timed=True),
    "swappable_bindings": Workload(program="cuda_bindings", options=("--swappable",)),
    "bindings_events": Workload(program="cuda_bindings", environment=EVENTS),
    "eager_events": Workload(
        program="eager", environment=EVENTS, rounds=JUDGED_ROUNDS, is_timed=True
    ),
}


def _ran(*rows: str) -> tuple[str, ...]:
    return tuple(f"rows.{row}.{column}" for row in rows for column in (RAN, AGREES))


RAN, AGREES = "runs_managed", "same_results"
BELIEFS = (
    Belief(
        question="Do programs of the driver API run under the shim, to the same results?",
        believed="yes: gating the calling thread keeps order, errors and default-stream semantics",
        used_by=("shim/calls.def",),
        answers=_ran("cuda_bindings", "swappable_bindings"),
    ),
    Belief(
        question="Do the CUDA runtime and torch, eager and with graphs?",
        believed="yes; they find the driver by dlsym and cuGetProcAddress",
        used_by=("shim/lookup.cpp",),
        answers=_ran("eager", "vision", "graph"),
    ),
    Belief(
        question="How much of its throughput does torch keep?",
        believed="eager at least 0.97, graphs at least 0.99",
        used_by=("shim/stream/segments.cpp",),
        answers=(
            "rows.eager.ratio",
            "rows.vision.ratio",
            "rows.language.ratio",
            "rows.graph.ratio",
            "rows.compiled.ratio",
        ),
    ),
    Belief(
        question="What does a launch of an empty kernel take the host, in ns, and what does Tandem "
        "add: median, p99",
        believed="about 2,000; to the median 25 or less, to the p99 a marker or a timed pair",
        used_by=("shim/stream/submit.cpp", "shim/stream/segments.h", "bench/launch.py"),
        answers=(
            "launch.bare.median_ns",
            "launch.managed.added_median_ns",
            "launch.bare.p99_ns",
            "launch.managed.added_p99_ns",
            "launch.observed.added_median_ns",
            "launch.switched_off.added_median_ns",
            "launch.bare.added_recorded_ns",
            "launch.bare.added_locked_ns",
        ),
    ),
    Belief(
        question="What of that do markers and gating take, and what recording?",
        believed="markers the most: a stream memory operation for each 100 us of GPU time",
        used_by=("shim/stream/segments.cpp",),
        answers=("rows.eager.ratio_observed", "rows.vision.ratio_observed"),
    ),
    Belief(
        question="And with events for markers: of bare throughput, and of that with memory "
        "operations?",
        believed="no more: an event is no cheaper, and the helper thread has to ask about it",
        used_by=("shim/stream/markers.cpp", "shim/job/helper.cpp"),
        answers=(
            "rows.eager_events.ratio",
            "beside.eager_events",
            *_ran("eager_events", "bindings_events"),
        ),
    ),
    Belief(
        question="Do torch's other allocators work: virtual memory, the driver's pools?",
        believed="yes, each is counted by its own handles",
        used_by=("shim/handlers/vmm.h", "shim/handlers/pools.h"),
        answers=_ran("expandable_segments", "malloc_async"),
    ),
    Belief(
        question="Does torch run on memory that is made by mapping, and as fast: over memory that "
        "is not, by torch's allocators without Tandem and by Tandem's?",
        believed="yes; the driver maps in 2 MiB either way",
        used_by=("shim/swap/regions.cpp",),
        answers=(
            *_ran("swappable"),
            "beside.expandable_segments",
            "beside.malloc_async",
            "beside.swappable",
        ),
    ),
)


def measure(bench: Bench) -> dict[str, Any]:
    """Make a row per workload."""
    end_s = progress.end_s(reserve_s=RESERVE_S, most_s=BUDGET_S)
    rows: dict[str, Row] = {}
    figures: dict[str, Any] = {}
    launch = answered("launch", lambda: launch_latency(bench))

    def take(name: str) -> None:
        workload, begin_s = WORKLOADS[name], time.monotonic()
        reason = sources.why_not(bench, workload.program)
        if not reason and begin_s > end_s:
            reason = "no time was left"
        row = not_run(reason) if reason else _measured(bench, name, workload)
        with progress.lock:
            rows[name] = row
            in_order = {known: rows[known] for known in WORKLOADS if known in rows}
            figures.update({"launch": launch, "rows": in_order, "beside": beside(rows)})
            bench.save({"mode": bench.place.mode, **figures})
        took_s = time.monotonic() - begin_s
        say(f"{name} ({took_s:.0f} s): " + ", ".join(f"{k} {v}" for k, v in told(row)))

    for name in (name for name, workload in WORKLOADS.items() if workload.needs_quiet):
        take(name)
    with ThreadPoolExecutor(AT_A_TIME if bench.where == GPU else 1) as pool:
        list(pool.map(take, (n for n, workload in WORKLOADS.items() if not workload.needs_quiet)))
    rows_good = all(row.get("ok", True) for row in rows.values())
    good = rows_good and (all_answered(launch) or bench.where != GPU)
    return {"mode": bench.place.mode, **figures, "ok": good}


def told(row: Row) -> list[tuple[str, object]]:
    """The figures of a row that were measured."""
    return [(name, value) for name, value in row.items() if value != NOT_RUN]


def _measured(bench: Bench, name: str, workload: Workload) -> Row:
    folder = bench.folder / name
    folder.mkdir()
    try:
        runs = _runs(bench, name, workload, folder)
    except WorkerError as failure:  # of a daemon
        return {**not_run(children.last_line(failure)), "ok": False}
    again = _digest(bench, workload, folder) if needs_another(runs) else ""
    return row_of(runs, again=again, limit=workload.limit, on_gpu=bench.where == GPU)


def _runs(bench: Bench, name: str, workload: Workload, folder: Path) -> dict[str, Run]:
    """Run a row's processes: they start together, open the device one by one, and take turns."""
    end_s = time.monotonic() + workload.seconds
    bare = _bare_environment(bench, workload, folder)
    with ExitStack() as stack:
        environments = {
            mode: stack.enter_context(environment_of(mode, bare, folder)) for mode in MODES
        }
        processes = {
            mode: stack.enter_context(_process(bench, name, workload, mode, environment, folder))
            for mode, environment in environments.items()
        }
        for process in processes.values():
            process.wait_up(end_s)
        opening_s = time.monotonic()
        processes[OBSERVED].open(end_s)
        if processes[OBSERVED].run.error:  # it may have hung; do not charge the others for that
            end_s += time.monotonic() - opening_s
        for mode in (BARE, MANAGED):
            processes[mode].open(end_s)
        for number in range(_rounds(bench, workload)):
            for mode in order_of(number):
                processes[mode].round(end_s)
        for process in processes.values():
            process.end(end_s)
        return {mode: process.run for mode, process in processes.items()}


def _rounds(bench: Bench, workload: Workload) -> int:
    return workload.all_rounds if bench.where == GPU else 3


def _bare_environment(bench: Bench, workload: Workload, folder: Path) -> dict[str, str]:
    return {**sources.environment(bench, folder / "gpu"), **workload.environment}


@contextmanager
def _process(
    bench: Bench,
    name: str,
    workload: Workload,
    mode: str,
    environment: Mapping[str, str],
    folder: Path,
) -> Iterator[_Process]:
    orders = {
        "program": workload.program,
        "device": bench.device,
        "rounds": _rounds(bench, workload),
        "round_s": ROUND_S if bench.where == GPU else DRY_ROUND_S,
    }
    program = [sys.executable, "-m", "bench.gpu.programs.workload_worker", json.dumps(orders)]
    command = command_of(mode, program, name=name, options=workload.options)
    worker = Worker(mode, command, env=environment, log=folder / f"{mode}.log")
    try:
        yield _Process(worker)
    finally:
        worker.close()


class _Process:
    """A process of a row. After an error, all further steps are skipped."""

    def __init__(self, worker: Worker) -> None:
        self.run = Run()
        self._worker = worker
        self._begin_s = time.monotonic()

    def wait_up(self, end_s: float) -> None:
        if self._wait("up", end_s) is not None:
            self.run.start_s = time.monotonic() - self._begin_s

    def open(self, end_s: float) -> None:
        told = self._go("ready", end_s)
        if told is not None and self.run.start_s is not None:
            self.run.start_s += told["opened_s"]
            self.run.digest, self.run.is_managed = told["digest"], told["managed"]

    def round(self, end_s: float) -> None:
        told = self._go("round", end_s)
        if told is not None:
            self.run.rates.append(told["iterations"] / told["seconds"])

    def end(self, end_s: float) -> None:
        if self.run.error:
            return
        try:
            code = self._worker.wait(deadline_s=max(end_s - time.monotonic(), END_S))
        except subprocess.TimeoutExpired:
            self.run.error = "it computed, and did not end"
            return
        if code != 0:
            self.run.error = f"it computed, and ended with {code}: {self._worker.log_tail()[-200:]}"

    def _go(self, event: str, end_s: float) -> Message | None:
        if self.run.error:
            return None
        self._worker.go()
        return self._wait(event, end_s)

    def _wait(self, event: str, end_s: float) -> Message | None:
        # Half of the remaining time, so that the row's others have some left if this one hangs.
        deadline_s = round(max((end_s - time.monotonic()) / 2, 0.1), 1)
        try:
            return self._worker.wait_for(event, deadline_s=deadline_s)
        except WorkerError as failure:
            self.run.error = children.last_line(failure)
            say(str(failure))
            self._worker.close()  # a hung process must not disturb the others
            return None


def _digest(bench: Bench, workload: Workload, folder: Path) -> str:
    """The digest of a bare run alone; empty if it failed."""
    command = sources.command(bench, workload.program)
    environment = _bare_environment(bench, workload, folder)
    return sources.run(command, environment, log=folder / "again.log", deadline_s=ROW_S).digest


if __name__ == "__main__":
    main(measure)
