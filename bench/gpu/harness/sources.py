"""Runs programs of SOURCES in processes of their own: which can run here, and their results."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.gpu.figures.workload_rows import Run
from bench.gpu.harness import children
from bench.gpu.harness.part import CPU, SOFTWARE, Bench
from bench.gpu.programs import ENVIRONMENT, SOURCES, WHERE_ARE_YOU
from bench.gpu.programs.by_driver import IMAGE

STACKS_S = 1.0  # time for a program that hangs to print its stacks
WORDS = 100  # characters kept of its last line


def why_not(bench: Bench, name: str) -> str:
    """Why one of programs.SOURCES cannot run here; empty if it can."""
    source = SOURCES[name]
    if bench.where == SOFTWARE and not source.is_driver_api:
        return "the software GPU runs programs of the driver API only"
    if bench.where == CPU and source.needs_gpu:
        return "it needs a GPU"
    if not has_package(source.package):
        return f"{source.package} is not installed"
    return ""


def has_package(name: str) -> bool:
    """Whether the package is installed; does not import it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def environment(bench: Bench, folder: Path) -> dict[str, str]:
    """The environment of bare programs; `folder` has their software GPU."""
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(bench.made / "inductor")}
    return {**bench.place.env(folder), **ENVIRONMENT, **inductor, IMAGE: str(bench.place.image)}


def command(bench: Bench, name: str) -> list[str]:
    """The command that runs the program to its end."""
    return [sys.executable, "-m", "bench.gpu.programs", name, bench.device]


def run(program: Sequence[str], env: Mapping[str, str], *, log: Path, deadline_s: float) -> Run:
    """Run such a command; its stderr, and its stacks if it hangs, go to `log`."""
    with (
        log.open("w") as errors,
        children.running(program, env, stdout=subprocess.PIPE, stderr=errors.fileno()) as child,
    ):
        try:
            said, _ = child.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            child.send_signal(WHERE_ARE_YOU)
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=STACKS_S)
            return Run(error=f"it was not done after {deadline_s:.0f} s")
    if child.returncode != 0:
        last = "".join(last_lines(log, 1)) or "it wrote nothing"
        return Run(error=f"it ended with {child.returncode}: {last[:WORDS]}")
    words = said.split()
    if not words:
        return Run(error="it said nothing")
    return Run(digest=words[-1], is_managed="managed: True" in log.read_text(errors="replace"))


def last_lines(log: Path, most: int = 40) -> list[str]:
    """The last non-empty lines of a program's log."""
    return [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-most:]
