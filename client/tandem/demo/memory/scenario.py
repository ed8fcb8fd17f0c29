"""Runs one set of jobs on one device, in one of the ways, and reports what became of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from tandem.demo.memory.settings import GRID_NS, STAGGER_NS, Kind, Order, Pace
from tandem.demo.place import Place
from tandem.demo.process import Message, Worker, WorkerError
from tandem.demo.scenario import READY_S, Program, Say, Scenario
from tandem.errors import DeadlineError

PATIENCE_S = 120.0  # plus ten times what the work takes alone
ATTEMPTS = 5
DRIVER_ERROR = re.compile(r"CUDA_ERROR_\w+")
SWAPPED = re.compile(r"^tandem_swap_(bytes|seconds)_total\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What became of one job; times on the device's clock."""

    name: str
    exit_code: int
    begin_ns: int = 0
    end_ns: int = 0
    correct: bool | None = None  # None: it died before it had a result
    error: str = ""  # the driver's error, if the job died

    @property
    def seconds(self) -> float:
        """The time from its first allocation to its last result; 0 if it died."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def is_finished(self) -> bool:
        """Whether it had a result, right or wrong, and exited with 0."""
        return self.exit_code == 0 and self.correct is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a scenario."""

    jobs: tuple[JobReport, ...]
    peak_bytes: int  # most device memory in use
    swapped_bytes: int = 0  # copied to the host and back
    swap_s: float = 0.0  # time for these copies

    @property
    def seconds(self) -> float:
        """The time from the first job's begin to the last job's end."""
        done = [job for job in self.jobs if job.is_finished]
        if not done:
            return 0.0
        return (max(job.end_ns for job in done) - min(job.begin_ns for job in done)) / 1e9


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The place where scenarios run. One thread; children are ended when a step fails."""

    place: Place
    folder: Path
    say: Say

    def alone(self, kind: Kind, pace: Pace) -> list[Outcome]:
        """Run each job by itself, without Tandem."""
        return [
            self.run(f"serial-{kind.name}-{role}", kind, pace, roles=[role]) for role in kind.roles
        ]

    def run(
        self,
        name: str,
        kind: Kind,
        pace: Pace,
        *,
        roles: Sequence[str] = (),
        options: Sequence[str] | None = None,
    ) -> Outcome:
        """Run jobs side by side; under `tandem run` if `options` is not None, even if it is empty.

        Raises:
            WorkerError: a job hangs without a result, or the daemon failed.
        """
        chosen = list(roles or kind.roles)
        work_s = pace.cells * pace.iterations  # an iteration is well below a second
        with ExitStack() as stack:
            scenario = stack.enter_context(
                Scenario(
                    name=name,
                    place=self.place,
                    program=self._program(kind, pace, chosen),
                    roles=chosen,
                    seconds=work_s,
                    folder=self.folder / name,
                    managed=options is not None,
                    options=options or (),
                    say=self.say,
                )
            )
            watch = stack.enter_context(Watch(scenario))
            watch.wait_until_up()
            scenario.start()
            return _outcome(scenario, watch, patience_s=PATIENCE_S + 10 * work_s)

    def _program(self, kind: Kind, pace: Pace, roles: Sequence[str]) -> Program:
        def command(role: str) -> list[str]:
            order = Order(
                image=str(self.place.image),
                share=kind.share,
                iterations=pace.iterations,
                cells=pace.cells,
                gap_ns=pace.gap_ns,
                delay_ns=roles.index(role) * STAGGER_NS,
                start_grid_ns=GRID_NS if self.place.clock == "virtual" else 0,
            )
            return worker_command(order)

        return command


class Watch:
    """A process that samples the device memory in use, from before the jobs to their end."""

    def __init__(self, scenario: Scenario) -> None:
        scenario.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tandem.demo.memory.watch"]
        log = scenario.folder / "watch.log"
        self._worker = Worker("watch", command, env=scenario.env, log=log)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def wait_until_up(self) -> None:
        """Wait until sampling has begun."""
        self._worker.wait_for("up", deadline_s=READY_S)

    def peak_bytes(self) -> int:
        """End the sampling and return the largest amount."""
        self._worker.go()
        return int(self._worker.wait_for("result", deadline_s=READY_S)["peak_bytes"])


def worker_command(order: Order) -> list[str]:
    """The command line of a job."""
    return [sys.executable, "-m", "tandem.demo.memory.worker", order.to_json()]


def measure(place: Place, folder: Path) -> Message:
    """Measure the device's name, memory, link and iteration lengths, in a separate worker.

    Raises:
        WorkerError: the worker failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = worker_command(Order(image=str(place.image), share=0))
    worker = Worker("measure", command, env=place.env(folder / "gpu"), log=folder / "measure.log")
    try:
        worker.go()
        return worker.wait_for("result", deadline_s=READY_S)
    finally:
        worker.close()


def _outcome(scenario: Scenario, watch: Watch, *, patience_s: float) -> Outcome:
    found: dict[str, Message | None] = {}
    for role, worker in scenario.workers.items():
        found[role] = _result(worker, patience_s)
        state = "has died" if found[role] is None else "has finished"
        scenario.say(f"  {role} {state}")
    swapped_bytes, swap_s = _swapped(scenario)
    peak_bytes = watch.peak_bytes()
    for worker in scenario.workers.values():
        worker.go()  # it was kept alive until its job's figures had been read
    jobs = (_report(worker, found[role]) for role, worker in scenario.workers.items())
    return Outcome(
        jobs=tuple(jobs), peak_bytes=peak_bytes, swapped_bytes=swapped_bytes, swap_s=swap_s
    )


def _result(worker: Worker, patience_s: float) -> Message | None:
    """The worker's result; None: it ended without one."""
    try:
        return worker.wait_for("result", deadline_s=patience_s)
    except WorkerError:
        if not worker.has_ended:
            raise
        return None


def _report(worker: Worker, result: Mapping[str, object] | None) -> JobReport:
    exit_code = worker.wait(deadline_s=READY_S)
    if result is None:
        errors = DRIVER_ERROR.findall(worker.log_tail())
        return JobReport(
            name=worker.role, exit_code=exit_code, error=errors[-1] if errors else "unknown"
        )
    return JobReport(
        name=worker.role,
        exit_code=exit_code,
        begin_ns=int(str(result["begin_ns"])),
        end_ns=int(str(result["end_ns"])),
        correct=bool(result["correct"]),
    )


def _swapped(scenario: Scenario) -> tuple[int, float]:
    """The bytes copied to the host and back, and the seconds that took, for all present jobs."""
    if not scenario.managed:
        return 0, 0.0
    totals = {"bytes": 0.0, "seconds": 0.0}
    for what, value in SWAPPED.findall(_metrics(scenario)):
        totals[what] += float(value)
    return int(totals["bytes"]), totals["seconds"]


def _metrics(scenario: Scenario) -> str:
    from tandem import Client

    with Client(directory=str(scenario.runtime_dir)) as client:
        for _ in range(ATTEMPTS - 1):
            with suppress(DeadlineError):  # on a busy machine
                return client.metrics(deadline_s=READY_S)
        return client.metrics(deadline_s=READY_S)
