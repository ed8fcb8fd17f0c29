"""What the daemon learns about a running job: an iteration's graph, with sampled parameters."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from bench.gpu.figures.trace_facts import family
from bench.gpu.harness.part import GPU, Bench
from bench.gpu.programs import ENVIRONMENT
from bench.gpu.programs.by_driver import IMAGE
from tandem import Client
from tandem._native import OperationKind
from tandem.dag.from_job import from_job
from tandem.dag.model import UNRESOLVED, Operation
from tandem.demo.process import Message, WorkerError
from tandem.demo.scenario import Scenario
from tandem.errors import TandemError

PATIENCE_S = 20.0  # to wait for the end of a detected iteration


def iteration(bench: Bench, name: str) -> Message:
    """Observe an iteration of one of programs.SOURCES while it runs under a daemon of its own.

    Raises:
        WorkerError: it failed, or the daemon learnt nothing about it.
    """
    mine = {**ENVIRONMENT, IMAGE: str(bench.place.image)}
    rounds = {"rounds": 1, "round_s": 2 * PATIENCE_S}  # we end it earlier, when we know enough
    orders = json.dumps({"program": name, "device": bench.device, **rounds})
    with Scenario(
        name=name,
        place=replace(bench.place, base_env={**bench.place.base_env, **mine}),
        program=lambda _: [sys.executable, "-m", "bench.gpu.programs.workload_worker", orders],
        roles=[name],
        seconds=0,
        folder=bench.folder / f"{name}-running",
        managed=True,
    ) as scenario:
        scenario.start()
        try:
            with Client(directory=str(scenario.runtime_dir)) as client:
                windows = client.windows(name, patience_s=PATIENCE_S if bench.where == GPU else 8.0)
            window = from_job(windows, name)
        except TandemError as failure:
            raise WorkerError(str(failure)) from failure
    sampled = sum(len(one.launches) for one in windows)
    return {
        "iterations": sum(one.iterations for one in windows),
        "lost_records": sum(one.lost_records for one in windows),
        **shares(window.operations, sampled),
    }


def shares(operations: tuple[Operation, ...], sampled: int) -> dict[str, Any]:
    """The shares of launches that were sampled, have buffers, and have all their memory known."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for operation in operations:
        if operation.kind is OperationKind.LAUNCH:
            of = counts[family(operation.name)]
            of["launches"] += 1
            of["with_buffers"] += bool(operation.accesses)
            of["all_known"] += not operation.flags & UNRESOLVED
    launches = sum(of["launches"] for of in counts.values())
    told: dict[str, Any] = {
        "launches": launches,
        "sampled_share": round(sampled / launches, 4) if launches else 0.0,
    }
    for name in ("with_buffers", "all_known"):
        known = sum(of[name] for of in counts.values())
        told[f"{name}_share"] = round(known / launches, 4) if launches else 0.0
    families = {name: dict(of) for name, of in sorted(counts.items())}
    return told | {"families": families}
