"""Shared by all parts: their arguments, the folder they work in, and the programs they start."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tandem.demo.place import Place, find_place
from tandem.demo.process import WorkerError
from tandem.demo.scenario import Program, Work, calibrate, demo_program

SERVER_LOAD = 0.28
GPU, CPU, SOFTWARE = "gpu", "cpu", "software"
WHERE = (GPU, CPU, SOFTWARE)
LIMIT_S = 480.0
LOG_BYTES = 16 << 10  # of the end of each log; kept beside the results
NO_GPU = "error: no NVIDIA GPU here; DRY=1 tries the plumbing on the software GPU"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The device, and the programs that play the roles.

    On a GPU these are torch programs, on the software GPU the demo's own. `cpu` runs torch without
    a device: then the shim is loaded and has nothing to do.
    """

    where: str  # of WHERE
    place: Place
    folder: Path
    keep: Path  # for files that stay beside the results; created by a part that has some
    made: Path  # for compiled files; the parts of a run share it

    @cached_property
    def work(self) -> Work | None:
        """The calibrated work of the demo's programs, if they play the roles.

        Raises:
            WorkerError: the device does not run the demo's kernels.
        """
        return _work(self.place, self.folder) if self.where == SOFTWARE else None

    @property
    def device(self) -> str:
        """The name torch has for it; the software GPU counts as a CPU, being as small."""
        return "cuda" if self.where == GPU else "cpu"

    def save(self, figures: Mapping[str, Any]) -> None:
        """Save the figures known so far, since a part may be ended before it is done."""
        with progress.lock:
            progress.figures.update(figures)
            progress.write()

    def seconds(self, wanted: float) -> float:
        """How long to measure: as wanted on a GPU, otherwise just long enough to see it work."""
        return wanted if self.where == GPU else min(wanted, 3.0)

    def program(
        self,
        *,
        seconds: float,
        gap_ns: int = 0,
        iterations: int = 0,
        priorities: Mapping[str, int] | None = None,
    ) -> Program:
        """The command of each role; `priorities` are the driver's stream priorities."""
        if self.work is not None:
            return demo_program(self.place, self.work, seconds=seconds, priorities=priorities)
        orders = {
            "device": self.device,
            "seconds": seconds,
            "gap_ns": gap_ns,
            "iterations": iterations,
        }

        def command(role: str) -> list[str]:
            priority = (priorities or {}).get(role, 0)
            text = json.dumps({"role": role, "stream_priority": priority, **orders})
            return [sys.executable, "-m", "bench.gpu.programs.torch_worker", text]

        return command


@dataclass(kw_only=True)
class Progress:
    """Progress of the part that this process runs: its start, and its answers to questions."""

    began_s: float = field(default_factory=time.monotonic)
    limit_s: float = math.inf  # after that time it is ended from outside
    out: Path | None = None
    figures: dict[str, Any] = field(default_factory=dict)  # answers so far, as in the final result
    lock: threading.RLock = field(default_factory=threading.RLock)  # protects figures and the file

    def add(self, path: str, answer: Mapping[str, Any]) -> None:
        """Store an answer at its place in the figures and on disk, in case we are killed."""
        with self.lock:
            place = self.figures
            for name in path.split("."):
                place = place.setdefault(name, {})
            place.update(answer)
            self.write()

    def write(self) -> None:
        """Write the figures to their file, if there is one, replacing it atomically."""
        if self.out is None:
            return
        with self.lock:
            beside = self.out.with_suffix(".new")
            beside.write_text(json.dumps(self.figures))
            beside.replace(self.out)

    def end_s(self, *, reserve_s: float, most_s: float = math.inf) -> float:
        """The time on the monotonic clock after which nothing more may begin.

        `reserve_s` is how long the last step may take, `most_s` the part's share of a run's time.
        """
        return self.began_s + min(self.limit_s - reserve_s, most_s)


progress = Progress()


def main(measure: Callable[[Bench], dict[str, Any]]) -> None:
    """Parse a part's arguments, run it, write its figures. Exit with 1 if these are not ok.

    A part that fails, or is ended from outside, leaves the figures and answers saved so far.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--where", choices=WHERE, default=GPU)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help="after which it is ended")
    parser.add_argument("--keep", type=Path, help="folder of other files (that of --out)")
    parser.add_argument("--made", type=Path, help="folder of what is compiled (one of its own)")
    arguments = parser.parse_args()
    progress.began_s, progress.limit_s = time.monotonic(), arguments.seconds
    progress.out = arguments.out
    keep = arguments.keep or arguments.out.parent
    try:
        with bench(where=arguments.where, keep=keep, made=arguments.made) as it:
            try:
                figures = measure(it)
            finally:
                keep_logs(it.folder, keep / "logs" / arguments.out.stem)
    except WorkerError as failure:
        figures = _unfinished(str(failure))
    except (Exception, KeyboardInterrupt) as failure:  # a defect, or its time is up
        traceback.print_exc()
        figures = _unfinished(f"{type(failure).__name__}: {failure}")
    progress.figures = figures
    progress.write()
    sys.exit(0 if figures.get("ok", True) else 1)


def _unfinished(why: str) -> dict[str, Any]:
    say(f"error: {why}")
    return {**progress.figures, "error": why, "ok": False}


@contextmanager
def bench(*, where: str, keep: Path, made: Path | None = None) -> Iterator[Bench]:
    """Find the device. Unless this is a dry run, anything but an NVIDIA GPU is an error.

    Raises:
        WorkerError: the demo's kernels cannot be compiled here.
    """
    folder = Path(tempfile.mkdtemp(prefix="tandem-gpu-"))
    try:
        made = made or folder / "made"
        made.mkdir(parents=True, exist_ok=True)
        place = find_place(clock="real", folder=made)
        if where == GPU and place.kind != "nvidia":
            sys.exit(NO_GPU)
        yield Bench(where=where, place=place, folder=folder, keep=keep, made=made)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_logs(folder: Path, place: Path) -> None:
    """Keep the end of each program's log, since a borrowed machine cannot be asked again."""
    for log in folder.rglob("*.log"):
        words = log.read_bytes()[-LOG_BYTES:]
        if words:
            place.mkdir(parents=True, exist_ok=True)
            (place / kept_as(folder, log)).write_bytes(words)


def kept_as(folder: Path, log: Path) -> str:
    """The name under which a log from the part's folder is kept."""
    return "-".join(log.relative_to(folder).parts)


def _work(place: Place, folder: Path) -> Work:
    measured = calibrate(place, folder / "calibrate")
    request_ns = int(measured["request_ns"])
    gap_ns = int(request_ns / SERVER_LOAD)
    return Work(blocks=int(measured["blocks"]), request_ns=request_ns, gap_ns=gap_ns)


def say(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)
