"""One scenario: workers on one device, with or without Tandem, and what they reported."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tandem.demo.measure import Outcome, Span, WorkerReport
from tandem.demo.place import Place
from tandem.demo.process import Daemon, Message, Worker
from tandem.demo.settings import Settings

VIRTUAL_GRID_NS = 2_000_000_000
READY_S = 60.0
FINISH_SLACK_S = 90.0

Say = Callable[[str], None]
Program = Callable[[str], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The sizes that calibration found, the same for all scenarios of a run."""

    blocks: int
    request_ns: int
    gap_ns: int
    pause_ns: int = 0


@dataclass(kw_only=True)
class Scenario:
    """Runs workers together. Use as a context manager: leaving it ends every child.

    `program` maps a role to the command that plays it and speaks the JSON lines of worker.py.
    `config` is the text of the daemon's configuration, for trying other settings; `options` are
    further options for `tandem run`; `classes` maps roles to classes other than batch.
    """

    name: str
    place: Place
    program: Program
    roles: Sequence[str]
    seconds: float
    folder: Path
    managed: bool = False
    keep: bool = False
    config: str = ""
    options: Sequence[str] = ()
    classes: Mapping[str, str] = field(default_factory=lambda: {"server": "latency"})
    say: Say = lambda text: None
    workers: dict[str, Worker] = field(default_factory=dict)
    daemon: Daemon | None = None
    _children: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Scenario:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.daemon is not None:
            self.daemon.close()  # interrupted or failed: end even one that was to be kept
        self._children.close()

    @property
    def runtime_dir(self) -> Path:
        """The daemon's runtime directory for this scenario."""
        return self.folder / "run"

    @property
    def env(self) -> dict[str, str]:
        """The environment of the workers and the daemon."""
        return {
            **self.place.env(self.folder / "gpu"),
            "TANDEM_RUNTIME_DIR": str(self.runtime_dir),
            # The figures must not depend on a user's own configuration file.
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }

    def run(self) -> Outcome:
        """Start everything, wait for the end, return the figures.

        Raises:
            WorkerError: a worker or the daemon failed.
        """
        self.start()
        return self.finish()

    def start(self) -> None:
        """Start the daemon and the workers, and let the workers begin together."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.runtime_dir.mkdir(mode=0o700, exist_ok=True)
        if self.managed:
            self.start_daemon()
        env = self.env
        for role in self.roles:
            log = self.folder / f"{role}.log"
            worker = Worker(role, self._command(role), env=env, log=log)
            self._children.callback(worker.close)
            self.workers[role] = worker
            worker.wait_for("up", deadline_s=READY_S)
        # One after the other, so that in every run they get the same numbers, as jobs and on the
        # device.
        for worker in self.workers.values():
            worker.go()
            worker.wait_for("ready", deadline_s=READY_S)
        for worker in self.workers.values():
            worker.go()

    def start_daemon(self) -> None:
        """Start tandemd on the runtime directory; can be called again after it was killed."""
        # Always our own file: the demo must not depend on the configuration of the machine's
        # daemon.
        config = self.folder / "tandemd.toml"
        config.write_text(self.config or "version = 1\n")
        arguments = ["--config", str(config)]
        if self.place.clock == "virtual":
            arguments += ["--clock", "softgpu"]
        self.daemon = Daemon(
            arguments=arguments,
            env=self.env,
            runtime_dir=self.runtime_dir,
            log=self.folder / "tandemd.log",
        )
        if self.keep:
            self.say(self._by_hand(self.daemon))
        else:
            self._children.callback(self.daemon.close)

    def finish(self, *, expect_alive: Sequence[str] = ()) -> Outcome:
        """Wait for the results of all workers, or of those in `expect_alive`.

        Raises:
            WorkerError: one of them failed.
        """
        deadline_s = self.seconds + FINISH_SLACK_S
        reports = []
        for role in expect_alive or self.roles:
            worker = self.workers[role]
            result = worker.wait_for("result", deadline_s=deadline_s)
            reports.append(_report(worker, result, code=worker.wait(deadline_s=30)))
        return Outcome(
            name=self.name,
            window_ns=int(self.seconds * 1e9),
            workers=tuple(reports),
            spans=tuple(read_timeline(self.folder / "gpu" / "timeline.jsonl")),
            mode=self.place.mode,
        )

    def _command(self, role: str) -> list[str]:
        program = list(self.program(role))
        if not self.managed:
            return program
        options = ["--require", "-p", self.classes.get(role, "batch"), "-J", role, *self.options]
        return [sys.executable, "-m", "tandem.cli", "run", *options, "--", *program]

    def _by_hand(self, daemon: Daemon) -> str:
        variables = [f"{name}={value}" for name, value in self.env.items() if _ours(name)]
        again = shlex.join([*variables, *daemon.command])
        # `make demo` runs from an environment that may not be on the PATH.
        tandem = "tandem" if shutil.which("tandem") else f"{sys.executable} -m tandem.cli"
        return (
            f"runtime directory {self.runtime_dir}\n"
            f"  look:      TANDEM_RUNTIME_DIR={self.runtime_dir} {tandem} ps\n"
            f"  kill it:   kill -9 {daemon.pid}\n"
            f"  hang it:   kill -STOP {daemon.pid}\n"
            f"  start it:  env {again}\n"
        )


def _ours(name: str) -> bool:
    return name.startswith("TANDEM_") or name in {"LD_LIBRARY_PATH", "PYTHONPATH"}


def worker_command(settings: Settings) -> list[str]:
    """The command line of the demo's own worker."""
    return [sys.executable, "-m", "tandem.demo.worker", settings.to_json()]


def demo_program(
    place: Place, work: Work, *, seconds: float, priorities: Mapping[str, int] | None = None
) -> Program:
    """The demo's programs, for `Scenario.program`; `priorities` are of their streams, by role."""
    grid_ns = VIRTUAL_GRID_NS if place.clock == "virtual" else 0

    def command(role: str) -> list[str]:
        return worker_command(
            Settings(
                role=role,
                image=str(place.image),
                blocks=work.blocks,
                seconds=seconds,
                gap_ns=work.gap_ns,
                pause_ns=work.pause_ns,
                stream_priority=(priorities or {}).get(role, 0),
                start_grid_ns=grid_ns,
            )
        )

    return command


def calibrate(place: Place, folder: Path) -> Message:
    """Measure the device in a separate worker: name, blocks, request_ns.

    Raises:
        WorkerError: the worker failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(role="calibrate", image=str(place.image))
    command = worker_command(settings)
    env = place.env(folder / "gpu")
    worker = Worker("calibrate", command, env=env, log=folder / "calibrate.log")
    try:
        worker.go()
        return worker.wait_for("result", deadline_s=READY_S)
    finally:
        worker.close()


def read_timeline(path: Path) -> list[Span]:
    """The software GPU's operations, oldest first; empty if there is no timeline."""
    if not path.is_file():
        return []
    spans = []
    for line in path.read_text().splitlines():
        item: Mapping[str, object] = json.loads(line)
        spans.append(Span.from_json(item))
    return spans


def _report(worker: Worker, result: Message, *, code: int) -> WorkerReport:
    return WorkerReport(
        role=worker.role,
        pid=worker.pid,
        exit_code=code,
        start_ns=int(result["start_ns"]),
        items=tuple(result["items"]),
        digest=str(result.get("digest", "")),
    )
