"""Compares policies on the same clients: requests of eight networks with different lengths.

Asks the simulator the questions of PREMA (Choi and Rhu, HPCA 2020): how much longer than alone
requests take on average (ANTT), how much the clients get done together (STP), and how many requests
are within their objective, k times the time of a request alone. In `mixed`, classes are unrelated
to lengths. In `servers`, all clients are of class latency, and a trainer of class batch takes what
they leave. `alike` is `servers` with a workload like Clockwork's (Gujarati et al., OSDI 2020):
requests of 4 to 16 ms, and one objective for all. Ratios are of a model, never of a card; their
base is `fifo`, the order in which the jobs came. The paper's FCFS is the order of requests, which
no policy here uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.bars import Bar, bar, progress, show_bars
from tandemd.sim.report import percentile, slowdown_of
from tandemd.sim.run import JobOutcome, Outcome, simulate
from tandemd.sim.workload import Workload, workload_of

COMPARED = ("fifo", "fair", "priority", "token", "exclusive")
BASE = "fifo"
# GPU time of a request in milliseconds, and class, in the order in which the clients arrive.
CLIENTS = {
    "e": (30, "normal"),
    "b": (8, "normal"),
    "h": (120, "normal"),
    "c": (12, "batch"),
    "f": (50, "batch"),
    "a": (5, "latency"),
    "g": (80, "latency"),
    "d": (20, "latency"),
}
ALIKE_MS = {"e": 8, "b": 5, "h": 16, "c": 6, "f": 10, "a": 4, "g": 13, "d": 7}
ALIKE_OBJECTIVE_MS = 50
TRAINING = {"iterations": 10_000, "gpu": "40ms", "host": "2ms"}
OBJECTIVE = 8  # times what a request takes alone
SCENES = ("mixed", "servers", "alike")
LOADS = (0.5, 0.7)  # of the GPU, in equal shares for all clients
SPAN = "10s"
UNTIL_NS = 12_000_000_000
SEGMENT_US = 1000  # long, since a simulation has as many steps as segments


def run() -> dict[str, Any]:
    """Simulate all cases, print a table, return the ratios."""
    found: dict[str, dict[str, float]] = {}
    for scene in SCENES:
        for load in LOADS:
            alone = dict(_alone(scene, load))
            for policy in COMPARED:
                progress(f"{scene}, load {load}, {policy}")
                outcome = simulate(_workload(scene, load, policy), until_ns=UNTIL_NS)
                found[f"{scene}, {load}, {policy}"] = _figures(outcome, alone)
    _show(found)
    ratios = {name: _ratios(of, found) for name, of in found.items()}
    bars = _bars(ratios)
    show_bars(bars)
    return {"bench": "policies", "cases": found, "ratios": ratios, "bars": bars}


def _jobs(scene: str, load: float) -> Iterator[dict[str, Any]]:
    for name, (usual_ms, job_class) in CLIENTS.items():
        ms = ALIKE_MS[name] if scene == "alike" else usual_ms
        objective_ms = ALIKE_OBJECTIVE_MS if scene == "alike" else OBJECTIVE * ms
        rate = load / len(CLIENTS) * 1000 / ms
        yield {
            "name": name,
            "class": job_class if scene == "mixed" else "latency",
            "slo": f"p99={objective_ms}ms",
            "serving": {"gpu": f"{ms}ms", "rate": rate, "duration": SPAN, "seed": 1},
        }
    if scene != "mixed":
        yield {"name": "trainer", "class": "batch", "training": TRAINING}


def _workload(scene: str, load: float, policy: str) -> Workload:
    scheduler = {"policy": policy, "segment_us": SEGMENT_US}
    said = {"job": list(_jobs(scene, load)), "scheduler": scheduler}
    return workload_of(said, Path("policies"), {})


def _alone(scene: str, load: float) -> Iterator[tuple[str, JobOutcome]]:
    workload = _workload(scene, load, BASE)
    for job in workload.jobs:
        yield job.name, simulate(workload.only(job), until_ns=UNTIL_NS).jobs[0]


def _figures(outcome: Outcome, alone: dict[str, JobOutcome]) -> dict[str, float]:
    clients = [job for job in outcome.jobs if job.requests_ns]
    slowdowns = [slowdown_of(job, alone[job.name]) or 0.0 for job in clients]
    within = [took_ns <= job.slo_ns for job in clients for took_ns in job.requests_ns]
    tails = [
        (percentile(job.requests_ns, 0.99) or 0)
        / (percentile(alone[job.name].requests_ns, 0.5) or 1)
        for job in clients
    ]
    trained = [job.steps / alone[job.name].steps for job in outcome.jobs if job.steps]
    figures = {
        "antt": sum(slowdowns) / len(slowdowns),
        "stp": sum(1 / slowdown for slowdown in slowdowns),
        "within_slo": sum(within) / len(within),
        "worst_p99_vs_median_alone": max(tails),
        "trained": sum(trained),
    }
    return {name: round(value, 3) for name, value in figures.items()}


def _ratios(figures: dict[str, float], found: dict[str, dict[str, float]]) -> dict[str, float]:
    scene = next(name for name, of in found.items() if of is figures).rpartition(", ")[0]
    base = found[f"{scene}, {BASE}"]
    return {f"{key}_vs_{BASE}": round(figures[key] / base[key], 3) for key in figures if base[key]}


def _bars(ratios: dict[str, dict[str, float]]) -> dict[str, Bar]:
    """The bars of `token`: it slows down requests of different lengths less on average."""
    return {
        f"token_antt_vs_{BASE}, {load}": bar(
            ratios[f"mixed, {load}, token"][f"antt_vs_{BASE}"], 1.0
        )
        for load in LOADS
    }


def _show(found: dict[str, dict[str, float]]) -> None:
    print(f"{'scene, load, policy':<28}{'ANTT':>8}{'STP':>8}{'in SLO':>8}{'p99':>8}{'trained':>9}")
    for name, of in found.items():
        print(f"{name:<28}" + "".join(f"{value:>8.2f}" for value in of.values()))
