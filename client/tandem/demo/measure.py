"""Computes the figures of a scenario from what workers and the device reported. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.demo.settings import TRAINERS
from tandem.demo.stats import Interval, clip, covered_ns, percentile, rate_per_s, share_of_idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation on the software GPU's timeline."""

    start_ns: int
    end_ns: int
    pid: int
    stream: int
    kind: str
    name: str

    @staticmethod
    def from_json(item: Mapping[str, Any]) -> Span:
        """Convert one line of the timeline."""
        return Span(
            start_ns=int(item["t_start_ns"]),
            end_ns=int(item["t_end_ns"]),
            pid=int(item["pid"]),
            stream=int(item["stream"]),
            kind=str(item["kind"]),
            name=str(item["name"]),
        )


@dataclass(frozen=True, kw_only=True)
class WorkerReport:
    """One worker's result; the items are its requests or iterations, as dictionaries."""

    role: str
    pid: int
    exit_code: int
    start_ns: int
    items: tuple[Mapping[str, Any], ...]
    digest: str = ""  # of what it computed, from programs that report one

    @property
    def intervals(self) -> list[Interval]:
        """When each item was processed, on the device's clock."""
        return [(self.start_ns + i["begin_ns"], self.start_ns + i["end_ns"]) for i in self.items]

    @property
    def all_correct(self) -> bool:
        """Whether all checksums were right and the program exited with 0."""
        return self.exit_code == 0 and bool(self.items) and all(i["correct"] for i in self.items)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a scenario. `spans` is empty on a GPU."""

    name: str
    window_ns: int
    workers: tuple[WorkerReport, ...]
    spans: tuple[Span, ...]
    mode: str = "time"  # of the GPU; in "time", kernels of several processes do not overlap

    def worker(self, role: str) -> WorkerReport | None:
        """The report of the worker with that role, if it took part."""
        return next((w for w in self.workers if w.role == role), None)


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What the programs achieve when each has the device to itself."""

    request_ns: float  # GPU time of one request
    iteration_ns: Mapping[str, float]  # of one iteration, by role


def latencies_ms(server: WorkerReport) -> list[float]:
    """Completion minus arrival of each request, so that time in the queue counts."""
    return [(i["end_ns"] - i["arrival_ns"]) / 1e6 for i in server.items]


def service_ms(server: WorkerReport) -> list[float]:
    """Completion minus begin of each request: the same for all on a quiet device."""
    return [(i["end_ns"] - i["begin_ns"]) / 1e6 for i in server.items]


def noise_ratio(server: WorkerReport) -> float:
    """p99 over p50 of the service time; excludes queueing, which Poisson arrivals cause anyway."""
    times = service_ms(server)
    return percentile(times, 99) / percentile(times, 50)


def server_figures(server: WorkerReport) -> dict[str, float | int]:
    """The `server` object of the report."""
    times = latencies_ms(server)
    return {
        "requests": len(times),
        "p50_ms": round(percentile(times, 50), 3) if times else 0.0,
        "p99_ms": round(percentile(times, 99), 3) if times else 0.0,
        "errors": sum(not i["correct"] for i in server.items) + int(server.exit_code != 0),
    }


def trainer_figures(trainer: WorkerReport) -> dict[str, object]:
    """One entry of `trainers` in the report."""
    return {
        "name": trainer.role,
        "iterations_per_s": round(rate_per_s(trainer.intervals), 4),
        "checksum_ok": trainer.all_correct,
    }


def busy_ratio(outcome: Outcome, alone: Alone) -> float:
    """The fraction of the window in which the device computed."""
    if outcome.spans:
        return covered_ns(_kernels(outcome, outcome.workers)) / outcome.window_ns
    return min(sum(_work_ns(w, outcome, alone) for w in outcome.workers) / outcome.window_ns, 1.0)


def idle_share(outcome: Outcome, alone: Alone) -> float:
    """The share of the time left by the server that the trainers used.

    Computed from the timeline if kernels do not overlap; otherwise from the work done, each item
    counted with its duration alone.
    """
    servers = [w for w in outcome.workers if w.role not in TRAINERS]
    trainers = [w for w in outcome.workers if w.role in TRAINERS]
    if outcome.spans and outcome.mode == "time":
        used = [covered_ns(_kernels(outcome, who)) for who in (trainers, servers)]
    else:
        used = [int(sum(_work_ns(w, outcome, alone) for w in who)) for who in (trainers, servers)]
    return share_of_idle(trainers_ns=used[0], server_ns=used[1], window_ns=outcome.window_ns)


def _window(outcome: Outcome) -> Interval:
    start_ns = max(w.start_ns for w in outcome.workers)
    return start_ns, start_ns + outcome.window_ns


def _kernels(outcome: Outcome, who: Sequence[WorkerReport]) -> list[Interval]:
    pids = {w.pid for w in who}
    spans = [(s.start_ns, s.end_ns) for s in outcome.spans if s.kind == "kernel" and s.pid in pids]
    return clip(spans, _window(outcome))


def _work_ns(worker: WorkerReport, outcome: Outcome, alone: Alone) -> float:
    """The GPU time that the items done inside the window would have taken alone."""
    each_ns = alone.iteration_ns.get(worker.role, alone.request_ns)
    begin, end = _window(outcome)
    done = 0.0
    for a, b in worker.intervals:
        inside = max(min(b, end) - max(a, begin), 0)
        done += inside / (b - a) if b > a else 0.0
    return done * each_ns
