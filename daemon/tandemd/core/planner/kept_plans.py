"""What is measured while a plan is in force, to compare with its forecast; also for former plans.

Progress is defined as in plans.py: for a job without requests, the iterations that ended times what
one takes alone; for a job with requests, the fraction of the expected ones that was answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tandemd.core.model import Job
from tandemd.core.planner.plans import Valued, Worker
from tandemd.core.tuner.latency import MOST, percentile_ns

ENOUGH = 10  # iterations or requests; fewer say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of one job under one plan."""

    over_ns: int
    progress: float
    p99_ns: int = 0  # of its requests; 0 = too few


@dataclass(frozen=True, slots=True)
class Kept:
    """A former plan, its forecast, and what was measured under it."""

    valued: Valued
    measured: Mapping[str, Measured]


@dataclass(slots=True)
class Tally:
    """Counts since some moment."""

    since_ns: int = 0
    iterations: dict[int, int] = field(default_factory=dict)  # of each process, at that moment
    durations_ns: dict[str, deque[int]] = field(default_factory=dict)  # of each, the newest MOST
    served: dict[str, int] = field(default_factory=dict)  # how many requests in all

    @staticmethod
    def of(jobs: Iterable[Job], now_ns: int) -> Tally:
        """Return a tally that starts now."""
        processes = (process for job in jobs for process in job.processes.values())
        before = {process.process_id: process.usage.iterations for process in processes}
        return Tally(since_ns=now_ns, iterations=before)

    def take(self, job: Job, durations_ns: Iterable[int], now_ns: int) -> None:
        """Count requests that just ended, except those that began before `since_ns`."""
        name = job.display_name
        known = self.durations_ns.setdefault(name, deque(maxlen=MOST))
        fresh = [one_ns for one_ns in durations_ns if now_ns - one_ns >= self.since_ns]
        self.served[name] = self.served.get(name, 0) + len(fresh)
        known += fresh

    def forget(self, job: Job) -> None:
        """Drop the job's requests: those to come are not comparable with them."""
        self.durations_ns.pop(job.display_name, None)
        self.served.pop(job.display_name, None)

    def measured(
        self, jobs: Iterable[Job], workers: Mapping[str, Worker], now_ns: int
    ) -> dict[str, Measured]:
        """Return the measurements of those jobs for which there are enough."""
        found = {job.display_name: self._of(job, workers, now_ns) for job in jobs}
        return {name: one for name, one in found.items() if one is not None}

    def _of(self, job: Job, workers: Mapping[str, Worker], now_ns: int) -> Measured | None:
        name, over_ns = job.display_name, now_ns - self.since_ns
        worker = workers.get(name)
        if worker is None or over_ns <= 0:
            return None
        served = self.served.get(name, 0)
        if worker.rate and served >= ENOUGH:
            p99_ns = percentile_ns(tuple(self.durations_ns[name]), 0.99)
            progress = min(1.0, served / (worker.rate * over_ns / 1e9))
            return Measured(over_ns=over_ns, progress=progress, p99_ns=p99_ns)
        ended = self._ended(job)
        if worker.rate or ended < ENOUGH:
            return None
        return Measured(over_ns=over_ns, progress=ended * worker.solo_ns / over_ns)

    def _ended(self, job: Job) -> int:
        """Return how many iterations its slowest process ended, among its current processes."""
        counts = (
            process.usage.iterations - self.iterations.get(process.process_id, 0)
            for process in job.processes.values()
        )
        return min(counts, default=0)
