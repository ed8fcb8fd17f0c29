"""Recordings of the programs' driver calls (`tandem trace calls`), for what reads them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.gpu.harness.part import Bench
from bench.gpu.programs import ENVIRONMENT
from bench.gpu.programs.by_driver import IMAGE
from tandem.demo.process import WorkerError

DEADLINE_S = 75.0


def environment(bench: Bench, folder: Path) -> dict[str, str]:
    """What a program runs with, without a daemon; `folder` has its software GPU."""
    mine = {IMAGE: str(bench.place.image), "TANDEM_DISABLE": "1"}
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(bench.folder / "inductor")}
    # Programs are started by name: a recording has their command line, but not where Python is.
    path = f"{Path(sys.executable).parent}:{bench.place.base_env.get('PATH', os.defpath)}"
    return {**bench.place.env(folder), **ENVIRONMENT, **mine, **inductor, "PATH": path}


def program(bench: Bench, name: str, iterations: int) -> list[str]:
    """The command of one of programs.SOURCES."""
    python = Path(sys.executable).name
    return [python, "-m", "bench.gpu.programs", name, bench.device, str(iterations)]


def record(bench: Bench, name: str, iterations: int, *, device_times: bool = False) -> Path:
    """The recording of a program from beginning to end, in the folder of the part.

    Raises:
        WorkerError: the program failed, or was not done in time.
    """
    output = bench.folder / f"{name}.trace"
    options = ["-o", str(output), *(["--device-times"] if device_times else [])]
    command = [sys.executable, "-m", "tandem.cli", "trace", "calls", *options, "--"]
    env = environment(bench, bench.folder / f"{name}-gpu")
    run([*command, *program(bench, name, iterations)], env)
    return output


def run(command: Sequence[str], env: Mapping[str, str], deadline_s: float = DEADLINE_S) -> str:
    """What a command says on stdout. It is ended with its children.

    Raises:
        WorkerError: it failed, or was not done by the deadline.
    """
    child = subprocess.Popen(
        command,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, errors = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        raise WorkerError(f"it was not done after {deadline_s:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.returncode != 0:
        raise WorkerError(f"it ended with {child.returncode}: {errors.strip()[-200:]}")
    return said
