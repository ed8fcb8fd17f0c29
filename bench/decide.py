"""How long the scheduler takes to decide, with 100 jobs on one GPU."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.bars import bar, progress, show, show_bars
from tandemd.core.events import (
    Action,
    CloseGates,
    Event,
    OpenGates,
    ProcessAttached,
    ProcessMapped,
    Ticked,
    UsageSampled,
)
from tandemd.core.model import JobClass, JobSpec, Options, Usage, WaitReason
from tandemd.core.policy import POLICIES
from tandemd.core.scheduler import Scheduler

JOBS = 100
LIMIT_US = 50.0
ROUNDS = 3
LOOKS = 2_000
LOOK_NS = 1_000_000
MANY = 100  # turns needed for a meaningful median
CAPACITY_BYTES = 80 << 30
CLASSES = (JobClass.LATENCY, *(JobClass.NORMAL,) * 49, *(JobClass.BATCH,) * 50)
# Probabilities, per look, that a job with work runs out of it, and that one without gets some.
LOADS = {"saturated": (0.0, 1.0), "coming and going": (0.05, 0.001)}

# Swappable jobs, of which only a few fit on the GPU: how many there are, and the host's memory.
CROWDS = (8, 32, JOBS)
CROWD_BYTES = 20 << 30
HOSTS = {"room on the host": 1 << 50, "no room on the host": 1 << 30}
CROWD_LOOKS = 100

Facts = tuple[bool, bool, int]  # of a job: whether it is busy, whether it is held, ns served


@dataclass
class World:
    """Simulated jobs that obey their gates; the same seed gives the same looks at them."""

    ends: float
    begins: float
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    is_open: list[bool] = field(default_factory=lambda: [True] * JOBS)
    wants: list[bool] = field(default_factory=lambda: [False] * JOBS)
    served_ns: list[int] = field(default_factory=lambda: [0] * JOBS)
    told: list[Facts | None] = field(default_factory=lambda: [None] * JOBS)

    def look(self) -> tuple[Usage, ...]:
        """Advance one millisecond; like the poller, return the usage of changed jobs only."""
        for job in range(JOBS):
            turn = self.ends if self.wants[job] else self.begins
            self.wants[job] ^= self.dice.random() < turn
        running = [job for job in range(JOBS) if self.wants[job] and self.is_open[job]]
        for job in running:
            self.served_ns[job] += LOOK_NS // len(running)
        facts = [self._facts(job) for job in range(JOBS)]
        before, self.told = self.told, [*facts]
        return tuple(_usage(job, facts[job]) for job in range(JOBS) if facts[job] != before[job])

    def _facts(self, job: int) -> Facts:
        wants, is_open = self.wants[job], self.is_open[job]
        return wants and is_open, wants and not is_open, self.served_ns[job]

    def follow(self, actions: list[Action]) -> bool:
        """Obey the actions; return whether a gate moved."""
        moved = [a for a in actions if isinstance(a, OpenGates | CloseGates)]
        for action in moved:
            for job in action.process_ids:
                self.is_open[job] = isinstance(action, OpenGates)
        return bool(moved)


def _usage(job: int, facts: Facts) -> Usage:
    busy, held, served_ns = facts
    return Usage(
        process_id=job,
        busy=busy,
        waiting_threads=int(held),
        wait_reason=WaitReason.GATE if held else WaitReason.NONE,
        exclusive_ns=served_ns,
    )


def _arrivals(*, swappable: bool) -> Iterator[Event]:
    for job, job_class in enumerate(CLASSES):
        spec = JobSpec(job_class=job_class, swappable=swappable)
        yield ProcessAttached(now_ns=job, process_id=job, job_id=job, uid=0, gpu=0, spec=spec)
        yield ProcessMapped(now_ns=job, process_id=job)


def _decisions(policy: str, load: str, *, swappable: bool) -> tuple[list[int], list[bool]]:
    """Measure each decision's nanoseconds, and whether it moved a gate."""
    core = Scheduler(Options(policy=policy))
    core.memory.line.capacity_bytes = {0: CAPACITY_BYTES}
    world = World(*LOADS[load])
    for event in _arrivals(swappable=swappable):
        world.follow(core.handle(event))
    costs, moved = [], []
    for look in range(1, LOOKS + 1):
        now_ns = JOBS + look * LOOK_NS
        news = world.look()
        event = UsageSampled(now_ns=now_ns, samples=news) if news else Ticked(now_ns=now_ns)
        start = time.perf_counter_ns()
        actions = core.handle(event)
        costs.append(time.perf_counter_ns() - start)
        moved.append(world.follow(actions))
    return costs, moved


def _crowded(jobs: int, host_bytes: int) -> list[float]:
    """Measure each decision's microseconds while one of the jobs computes and the others wait."""
    core = Scheduler(Options(policy="fair", host_limit_bytes=host_bytes))
    core.memory.line.capacity_bytes = {0: CAPACITY_BYTES}
    spec = JobSpec(swappable=True)
    for job in range(jobs):
        core.handle(
            ProcessAttached(now_ns=job, process_id=job, job_id=job, uid=0, gpu=0, spec=spec)
        )
        core.handle(ProcessMapped(now_ns=job, process_id=job))
    waits = [_crowded_usage(job, served_ns=None) for job in range(jobs)]
    core.handle(UsageSampled(now_ns=jobs, samples=tuple(waits)))
    costs = []
    for look in range(1, CROWD_LOOKS + 1):
        works = _crowded_usage(0, served_ns=look * LOOK_NS)
        event = UsageSampled(now_ns=jobs + look * LOOK_NS, samples=(works,))
        start = time.perf_counter_ns()
        core.handle(event)
        costs.append((time.perf_counter_ns() - start) / 1e3)
    return costs


def _crowded_usage(job: int, *, served_ns: int | None) -> Usage:
    is_here = (job + 1) * CROWD_BYTES <= CAPACITY_BYTES
    return Usage(
        process_id=job,
        busy=served_ns is not None,
        waiting_threads=int(served_ns is None),
        wait_reason=WaitReason.GATE if served_ns is None else WaitReason.NONE,
        exclusive_ns=served_ns or 0,
        device_bytes=CROWD_BYTES,
        swappable_bytes=CROWD_BYTES,
        swapped_bytes=0 if is_here else CROWD_BYTES,
    )


def _crowd_figures(jobs: int, host_bytes: int) -> dict[str, float]:
    rounds = [_crowded(jobs, host_bytes) for _ in range(ROUNDS)]
    costs = [min(times) for times in zip(*rounds, strict=True)]
    return {"median_us": _percentile(costs, 50), "p99_us": _percentile(costs, 99)}


def _figures(policy: str, load: str, *, swappable: bool = False) -> dict[str, float]:
    """Figures of one case; as all rounds see the same looks, the fastest time of each counts."""
    rounds = [_decisions(policy, load, swappable=swappable) for _ in range(ROUNDS)]
    moved = rounds[0][1]
    costs = [min(times) / 1e3 for times in zip(*(costs for costs, _ in rounds), strict=True)]
    turns = [cost for cost, did in zip(costs, moved, strict=True) if did]
    return {
        "median_us": _percentile(costs, 50),
        "p99_us": _percentile(costs, 99),
        "turns": len(turns),
        "turn_median_us": _percentile(turns, 50),
        "turn_p99_us": _percentile(turns, 99),
    }


def _percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values) or [0.0]
    return round(ordered[(len(ordered) - 1) * percent // 100], 2)


def run() -> dict[str, Any]:
    """Measure, print a table, return the result."""
    found: dict[str, dict[str, float]] = {}
    for policy in POLICIES:
        for load in LOADS:
            progress(f"{policy}, {JOBS} jobs {load}")
            found[f"{policy}, {load}"] = _figures(policy, load)
    fitting: dict[str, dict[str, float]] = {}
    for load in LOADS:
        name = f"{JOBS} swappable jobs that fit together, {load}"
        progress(name)
        fitting[name] = _figures("fair", load, swappable=True)
    crowds: dict[str, dict[str, float]] = {}
    for jobs in CROWDS:
        for host, host_bytes in HOSTS.items():
            progress(f"{jobs} swappable jobs, {host}")
            crowds[f"{jobs} swappable jobs, {host}"] = _crowd_figures(jobs, host_bytes)
    print(f"decide, {JOBS} jobs on one GPU, microseconds a decision")
    for name, figures in (*found.items(), *fitting.items(), *crowds.items()):
        print(f" {name}")
        show(figures, "")
    seen = {
        "median_us": [one["median_us"] for one in found.values()],
        "turn_median_us": [one["turn_median_us"] for one in found.values() if one["turns"] >= MANY],
        "crowd_median_us": [one["median_us"] for one in crowds.values()],
    }
    bars = {key: bar(max(values), LIMIT_US) for key, values in seen.items()}
    show_bars(bars)
    return {
        "bench": "decide",
        "jobs": JOBS,
        "cases": found | fitting,
        "crowds": crowds,
        "bars": bars,
    }
