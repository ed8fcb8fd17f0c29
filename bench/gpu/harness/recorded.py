"""Records the programs' driver calls (`tandem trace calls`) for parts that read recordings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.gpu.harness import children, sources
from bench.gpu.harness.part import Bench

DEADLINE_S = 75.0


def environment(bench: Bench, folder: Path) -> dict[str, str]:
    """The environment of a program without a daemon; `folder` has its software GPU."""
    # Python is found by PATH, so that a recording's command line does not contain its location.
    path = f"{Path(sys.executable).parent}:{bench.place.base_env.get('PATH', os.defpath)}"
    return {**sources.environment(bench, folder), "TANDEM_DISABLE": "1", "PATH": path}


def program(bench: Bench, name: str, iterations: int) -> list[str]:
    """The command of one of programs.SOURCES."""
    python = Path(sys.executable).name
    return [python, "-m", "bench.gpu.programs", name, bench.device, str(iterations)]


def record(bench: Bench, name: str, iterations: int) -> Path:
    """Record a program from beginning to end; return the recording, in the part's folder.

    Raises:
        WorkerError: the program failed, or was not done in time.
    """
    output = bench.folder / f"{name}.trace"
    command = [sys.executable, "-m", "tandem.cli", "trace", "calls", "-o", str(output), "--"]
    env = environment(bench, bench.folder / f"{name}-gpu")
    children.run([*command, *program(bench, name, iterations)], env, deadline_s=DEADLINE_S)
    return output
