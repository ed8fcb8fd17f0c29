"""What the shim adds to a launch.

Four variants of one C program take turns, seven rounds, each on the same CPU: bare software driver,
shim loaded but switched off, shim attached to a daemon, and attached while a latency-class job
computes now and then. A variant's figure is the smallest of its seven medians.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.bars import bar, show, show_bars, smallest_median
from bench.stage import Stage, stage

ROUNDS = 7
GROUPS = 200
ADDED_LIMIT_NS = 25
LATENCY_ACTIVE_LIMIT_NS = 120

Rounds = dict[str, list[list[float]]]


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    cpu = max(os.sched_getaffinity(0))
    with stage() as place:
        rounds = _measure(place, cpu)
    figures = _figures(rounds)
    bars = {
        "added_ns": bar(figures["added_ns"], ADDED_LIMIT_NS),
        "latency_active_added_ns": bar(figures["latency_active_added_ns"], LATENCY_ACTIVE_LIMIT_NS),
    }
    print(f"launch, smallest of {ROUNDS} interleaved medians, on CPU {cpu}")
    show(figures, "ns")
    show_bars(bars)
    ratios = {
        f"{name}_vs_bare": round(figures[f"{name}_ns"] / figures["bare_ns"], 4)
        for name in ("passthrough", "full")
    }
    return {"bench": "launch", **figures, "ratios": ratios, "bars": bars}


def _measure(place: Stage, cpu: int) -> dict[str, Rounds]:
    program, job = place.compile("launch.c"), place.compile("latency_job.c")
    image = place.kernels()
    batch = place.shimmed(TANDEM_PRIORITY="batch")
    found: dict[str, Rounds] = defaultdict(lambda: defaultdict(list))
    with place.daemon():
        for _ in range(ROUNDS):
            variants = {"bare": place.env, "passthrough": {**batch, "TANDEM_DISABLE": "1"}}
            variants["full"] = batch
            for name, env in variants.items():
                _one(found[name], program, image, env, cpu)
            with _job(job, image, place.shimmed(TANDEM_PRIORITY="latency")):
                _one(found["latency_active"], program, image, batch, cpu)
    return found


def _one(rounds: Rounds, program: Path, image: Path, env: Mapping[str, str], cpu: int) -> None:
    """Run the program once, pinned, and add its figures as a round."""
    child = subprocess.run(
        ["taskset", "-c", str(cpu), str(program), str(image), str(GROUPS)],
        env=dict(env),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    values: dict[str, list[float]] = defaultdict(list)
    for line in child.stdout.splitlines():
        name, value = line.split()
        values[name].append(float(value))
    for name, one in values.items():
        rounds[name].append(one)


def _figures(found: Mapping[str, Rounds]) -> dict[str, float]:
    launch = {name: smallest_median(rounds["launch"]) for name, rounds in found.items()}
    query = {name: smallest_median(rounds["query"]) for name, rounds in found.items()}
    added = launch["full"] - launch["bare"]
    figures = {
        "bare_ns": launch["bare"],
        "passthrough_ns": launch["passthrough"],
        "full_ns": launch["full"],
        "added_ns": added,
        "latency_active_added_ns": launch["latency_active"] - launch["bare"],
        "marker_ns": query["full"] - query["bare"] - added,
        "rdtsc_ns": smallest_median(found["bare"]["rdtsc"]),
    }
    return {name: round(value, 2) for name, value in figures.items()}


@contextmanager
def _job(program: Path, image: Path, env: Mapping[str, str]) -> Iterator[None]:
    """The latency job, from its first request until the block ends."""
    child = subprocess.Popen(
        [str(program), str(image)],
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if child.stdout is None or child.stdout.readline().strip() != "ready":
            msg = "the latency job did not start"
            raise RuntimeError(msg)
        yield
    finally:
        child.kill()
        child.communicate()
