"""What is measured while a plan is in force, beside what was foretold; the same of plans before.

Progress is that of plans.py: of who has no requests the iterations that ended, times what one takes
alone; of who has some the part of those expected that was answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tandemd.core.model import Job
from tandemd.core.planner.plans import Valued, Worker
from tandemd.core.tuner.latency import MOST, percentile_ns

ENOUGH = 10  # iterations or requests; of fewer nothing is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one job under one plan."""

    over_ns: int
    progress: float
    p99_ns: int = 0  # of its requests; 0 = too few


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan that was, what was foretold, and what came of it."""

    valued: Valued
    measured: Mapping[str, Measured]


@dataclass(slots=True)
class Tally:
    """Counts from one moment on."""

    since_ns: int = 0
    iterations: dict[int, int] = field(default_factory=dict)  # of each process, at that moment
    durations_ns: dict[str, deque[int]] = field(default_factory=dict)  # the newest MOST of each
    served: dict[str, int] = field(default_factory=dict)  # requests, however many

    @staticmethod
    def of(jobs: Iterable[Job], now_ns: int) -> Tally:
        """From now on."""
        processes = (process for job in jobs for process in job.processes.values())
        before = {process.process_id: process.usage.iterations for process in processes}
        return Tally(since_ns=now_ns, iterations=before)

    def take(self, job: Job, durations_ns: Iterable[int], now_ns: int) -> None:
        """Requests that ended just now; those that began before tell nothing."""
        name = job.display_name
        known = self.durations_ns.setdefault(name, deque(maxlen=MOST))
        fresh = [one_ns for one_ns in durations_ns if now_ns - one_ns >= self.since_ns]
        self.served[name] = self.served.get(name, 0) + len(fresh)
        known += fresh

    def forget(self, job: Job) -> None:
        """What its requests were so far is not compared with what they are from now on."""
        self.durations_ns.pop(job.display_name, None)
        self.served.pop(job.display_name, None)

    def measured(
        self, jobs: Iterable[Job], workers: Mapping[str, Worker], now_ns: int
    ) -> dict[str, Measured]:
        """Of the jobs of which enough is known."""
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
        """Iterations of its slowest process, of those that it has now."""
        counts = (
            process.usage.iterations - self.iterations.get(process.process_id, 0)
            for process in job.processes.values()
        )
        return min(counts, default=0)
