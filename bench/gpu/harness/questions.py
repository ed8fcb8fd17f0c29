"""Independent questions: one that fails records why, and the others continue.

A question does not begin unless enough time is left: ended from outside, it would have no answer.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bench.gpu.harness import children, native
from bench.gpu.harness.part import SOFTWARE, Bench, progress, say
from tandem.demo.place import Place
from tandem.demo.process import Message, Worker
from tandem.errors import TandemError

QUESTION_S = 30.0  # of the part's time that must be left to begin a question,
QUESTION_SHARE = 0.2  # or, in a short part, this share of its time
FAILURES = (
    RuntimeError,  # such as a WorkerError
    TandemError,
    OSError,
    subprocess.SubprocessError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
)


def answered(path: str, question: Callable[[], Message]) -> Message:
    """Ask the question; return its answer, or an object with `error` if it failed or was too late.

    `path` is the answer's place in the part's figures: names separated by dots.
    """
    reserve_s = min(QUESTION_S, QUESTION_SHARE * progress.limit_s)
    if time.monotonic() > progress.end_s(reserve_s=reserve_s):
        found: Message = {"error": "not asked: no time was left"}
    else:
        say(path)
        try:
            found = question()
        except FAILURES as failure:
            found = {"error": f"{type(failure).__name__}: {failure}"[-600:]}
            say(f"{path}: {found['error']}")
    progress.add(path, found)
    return found


def all_answered(figures: Mapping[str, Any]) -> bool:
    """Whether no question failed. One that does not apply has `why_not`, which is an answer."""
    return "error" not in figures and all(
        all_answered(found) for found in figures.values() if isinstance(found, Mapping)
    )


def big_place(bench: Bench) -> Place:
    """The device; a software GPU gets as many SMs and as much memory as a real one."""
    return replace(bench.place, profile="h200") if bench.where == SOFTWARE else bench.place


@contextmanager
def prober(bench: Bench, place: Place) -> Iterator[Worker]:
    """Start a process that can launch a small kernel again and again, see `probing`."""
    command = native.command(bench, "prober", "memory")
    with children.ready(bench, command, children.environment(bench, place)) as (worker, _):
        yield worker


@contextmanager
def probing(worker: Worker) -> Iterator[Message]:
    """Let the prober launch while the block runs; then fill in what its launches took, in us."""
    window: Message = {}
    children.told(worker, "began")
    try:
        yield window
    finally:
        window.update(children.told(worker, "window"))


@contextmanager
def nvml(bench: Bench, env: Mapping[str, str], *words: str) -> Iterator[Worker]:
    """Start a process that queries NVML, see nvml_worker.py."""
    command = [sys.executable, "-m", "bench.gpu.programs.nvml_worker", *words]
    with children.ready(bench, command, env, role="nvml") as (worker, _):
        yield worker
