"""Part `programs`: framework programs compute the same results under Tandem, even all at once.

In each of three arms, all of bench/gpu/programs run at the same time: bare, each with a daemon of
its own, and all as jobs of one daemon. Nothing is timed, so this takes a fraction of the time of
`workloads`. A program that fails or hangs says so in its row, with its final output under
`failures`, and the others continue.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.gpu.figures.program_rows import ARMS, COLUMNS, TOGETHER, row_of
from bench.gpu.figures.workload_rows import BARE, DIFFERENT, MANAGED, Row, Run, not_run
from bench.gpu.harness import children, sources
from bench.gpu.harness.beliefs import Belief
from bench.gpu.harness.part import CPU, Bench, kept_as, main, progress, say
from bench.gpu.harness.ways import command_of, environment_of
from bench.gpu.programs import SOURCES
from tandem.demo.process import WorkerError

AGAIN = "again"  # bare again: whether results that differ do so without Tandem, too
PROGRAM_S = 100.0  # time limit; long, since libraries may have to be read from a cold disk
RESERVE_S = 15.0
# Each imports gigabytes of libraries, and some compile, so as many as there are cores: on 16 cores
# that is all programs.
AT_A_TIME = os.cpu_count() or 1


def _answers(*programs: str) -> tuple[str, ...]:
    columns = ("same_results", f"runs_{TOGETHER}")
    return tuple(f"rows.{program}.{column}" for program in programs for column in columns)


BELIEFS = (
    Belief(
        question="Does torch compute under Tandem what it computes bare, also as one of many jobs: "
        "eager, trainers, graphs, compiled, streams, its allocator, without memory?",
        believed="yes, to the last bit",
        used_by=("shim/calls.def", "shim/lookup.cpp"),
        answers=_answers(
            *("eager", "vision", "language", "graph", "compiled"),
            *("streams", "allocations", "out_of_memory"),
        ),
    ),
    Belief(
        question="Do processes of one job work: workers by fork and spawn, CUDA IPC?",
        believed="yes; a forked child attaches on its own at its first call that needs a context",
        used_by=("shim/job/fork.cpp", "shim/handlers/ipc.h"),
        answers=_answers("loader_fork", "loader_spawn", "between_processes"),
    ),
    Belief(
        question="And programs of cuda.bindings, JAX, CuPy, Triton and numba?",
        believed="yes; none finds the driver in another way",
        used_by=("shim/lookup.cpp",),
        answers=_answers("cuda_bindings", "jax", "cupy", "triton", "numba"),
    ),
)


@dataclass(kw_only=True)
class _Found:
    """The outcome of each program in each arm so far."""

    bench: Bench
    end_s: float  # after that no program begins
    reasons: dict[str, str]  # why a program cannot run here; empty: it can
    runs: dict[str, dict[str, Run]] = field(default_factory=lambda: {name: {} for name in SOURCES})
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, arm: str, name: str, run: Run, log: Path) -> None:
        """Store and show a program's run."""
        with progress.lock:
            self.runs[name][arm] = run
            if run.error and log.exists():
                told = {"log": kept_as(self.bench.folder, log), "said": sources.last_lines(log)}
                self.failures.setdefault(name, {})[arm] = told
            self.bench.save(self.figures())
        say(f"{arm} {name}: {run.error or run.digest}")

    def figures(self) -> dict[str, Any]:
        rows = {name: self._row(name) for name in SOURCES}
        return {"mode": self.bench.place.mode, "rows": rows, "failures": self.failures}

    def _row(self, name: str) -> Row:
        if reason := self.reasons[name]:
            return not_run(reason, COLUMNS)
        runs = self.runs[name]
        again = runs.get(AGAIN, Run()).digest
        return row_of(runs, again=again, should_be_managed=self.bench.where != CPU)


def measure(bench: Bench) -> dict[str, Any]:
    """Make a row per program."""
    end_s = progress.end_s(reserve_s=RESERVE_S)
    reasons = {name: sources.why_not(bench, name) for name in SOURCES}
    found = _Found(bench=bench, end_s=end_s, reasons=reasons)
    names = [name for name, reason in reasons.items() if not reason]
    for number, arm in enumerate(ARMS):
        _run_all(found, arm, names, arms_left=len(ARMS) - number)
    rows = found.figures()["rows"]
    unlike = [name for name, row in rows.items() if row["same_results"] == DIFFERENT]
    if unlike:
        _run_all(found, AGAIN, unlike)
    figures = found.figures()
    return {**figures, "ok": all(row.get("ok", True) for row in figures["rows"].values())}


def _run_all(found: _Found, arm: str, names: Sequence[str], *, arms_left: int = 1) -> None:
    """Run an arm, such that even if all its programs hang, later arms have their share of time."""
    begin_s = time.monotonic()
    deadline_s = min(PROGRAM_S, (found.end_s - begin_s) / arms_left)
    folder = found.bench.folder / arm
    folder.mkdir()
    bare = sources.environment(found.bench, folder / "gpu")
    with (
        environment_of(MANAGED if arm == TOGETHER else BARE, bare, folder) as environment,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        list(pool.map(partial(_run_one, found, arm, environment, deadline_s), names))
    say(f"-- {arm}: {time.monotonic() - begin_s:.0f} s")


def _run_one(
    found: _Found, arm: str, environment: Mapping[str, str], deadline_s: float, name: str
) -> None:
    if time.monotonic() > found.end_s:
        return
    log = found.bench.folder / arm / f"{name}.log"
    mode = BARE if arm in (BARE, AGAIN) else MANAGED
    command = command_of(mode, sources.command(found.bench, name), name=name)
    own = log.with_suffix("")
    own.mkdir()
    try:
        with environment_of(MANAGED if arm == MANAGED else BARE, environment, own) as env:
            run = sources.run(command, env, log=log, deadline_s=deadline_s)
    except WorkerError as failure:  # of its daemon
        run = Run(error=children.last_line(failure))
    found.add(arm, name, run, log)


if __name__ == "__main__":
    main(measure)
