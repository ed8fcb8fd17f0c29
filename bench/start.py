"""What preloading the shim costs a program that never uses CUDA.

Starts the program and waits for it, in turn with and without LD_PRELOAD; figures are the smallest
of the rounds' medians. Every shell and `ls` in a job pays this cost.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.bars import bar, progress, show, show_bars, smallest_median
from bench.stage import SHIM, NotMeasuredError

ROUNDS = 5
PROGRAMS = {"true": (["/bin/true"], 200), "python": ([sys.executable, "-c", "pass"], 40)}
ADDED_LIMIT_US = 40
PYTHON_LIMIT_RATIO = 0.015


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    if not SHIM.is_file():
        msg = f"{SHIM} is not there; run `make build`"
        raise NotMeasuredError(msg)
    figures = {}
    for name, (command, times) in PROGRAMS.items():
        progress(f"{name}: {ROUNDS} rounds of {times} starts, with the shim and without")
        bare, shimmed = _rounds(command, times)
        figures[f"{name}_bare_us"] = smallest_median(bare)
        figures[f"{name}_added_us"] = smallest_median(shimmed) - smallest_median(bare)
    figures = {name: round(value, 2) for name, value in figures.items()}
    ratio = round(figures["python_added_us"] / figures["python_bare_us"], 4)
    bars = {
        "true_added_us": bar(figures["true_added_us"], ADDED_LIMIT_US),
        "python_added_ratio": bar(ratio, PYTHON_LIMIT_RATIO),
    }
    print(f"start of a program without CUDA, smallest of {ROUNDS} medians")
    show(figures, "us")
    show_bars(bars)
    return {"bench": "start", **figures, "ratios": {"python_added_vs_bare": ratio}, "bars": bars}


def _rounds(command: Sequence[str], times: int) -> tuple[list[list[float]], list[list[float]]]:
    bare_env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    shim_env = {**bare_env, "LD_PRELOAD": str(SHIM)}
    bare, shimmed = [], []
    for _ in range(ROUNDS):
        pairs = [(_start_us(command, bare_env), _start_us(command, shim_env)) for _ in range(times)]
        bare.append([pair[0] for pair in pairs])
        shimmed.append([pair[1] for pair in pairs])
    return bare, shimmed


def _start_us(command: Sequence[str], env: Mapping[str, str]) -> float:
    begin_ns = time.perf_counter_ns()
    pid = os.posix_spawn(command[0], list(command), dict(env))
    _, status = os.waitpid(pid, 0)
    spent_us = (time.perf_counter_ns() - begin_ns) / 1e3
    if status != 0:
        msg = f"{command[0]} ended with status {status}"
        raise NotMeasuredError(msg)
    return spent_us
