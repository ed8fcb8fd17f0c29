"""Questions that stand by themselves: one that fails says why, and the others go on.

So do those for which no time is left: a part that is ended from outside loses all its answers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.gpu import native
from bench.gpu.part import SOFTWARE, Bench, progress, say
from tandem.demo.place import Place
from tandem.demo.process import Message, Worker, WorkerError

READY_S = 60.0
PART_S = 210.0  # after which no further question is begun
FAILURES = (
    WorkerError,
    OSError,
    subprocess.SubprocessError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
)


def answered(name: str, question: Callable[[], Message]) -> Message:
    """What it says; an object with `error` if it failed, or came too late to be asked."""
    if progress.gone_s > PART_S:
        return {"error": f"not asked: {PART_S:g} s were over"}
    say(name)
    try:
        progress.answers[name] = question()
    except FAILURES as failure:
        said = f"{type(failure).__name__}: {failure}"[-600:]
        say(f"{name}: {said}")
        progress.answers[name] = {"error": said}
    found: Message = progress.answers[name]
    return found


def big_place(bench: Bench) -> Place:
    """The device; of software one with as many SMs and as much memory as a real one."""
    return replace(bench.place, profile="h200") if bench.where == SOFTWARE else bench.place


@contextmanager
def prober(bench: Bench, place: Place, name: str) -> Iterator[Worker]:
    """A process that launches a small kernel again and again, see `probing`."""
    command = [native.program(bench, "prober"), native.kernels(bench, "memory")]
    folder = bench.folder / "probers"
    env = place.env(bench.folder / f"gpu-{place.mode}")
    with native.talking(f"prober-{name}", command, env, folder) as worker:
        worker.wait_for("ready", deadline_s=READY_S)
        yield worker


@contextmanager
def probing(worker: Worker) -> Iterator[Message]:
    """It launches while the block runs; afterwards the object has what its launches took, in us."""
    window: Message = {}
    worker.go()
    worker.wait_for("began", deadline_s=READY_S)
    try:
        yield window
    finally:
        worker.go()
        found = worker.wait_for("window", deadline_s=READY_S)
        window.update((name, value) for name, value in found.items() if name != "event")


@contextmanager
def nvml(place: Place, bench: Bench, *words: str, folder: Path | None = None) -> Iterator[Worker]:
    """A process that asks NVML, see nvml_worker.py; `folder` has the device if it is software."""
    env = place.env(folder or bench.folder / f"gpu-{place.mode}")
    command = [sys.executable, "-m", "bench.gpu.nvml_worker", *words]
    with native.talking("nvml", command, env, bench.folder / "logs") as worker:
        worker.wait_for("ready", deadline_s=READY_S)
        yield worker
