"""Cancelled jobs: a signal at once, and SIGKILL for what is left after the grace.

A process that joins a cancelled job is sent the last signal again: it may be a child that was
forked earlier and uses the GPU only now. If all other processes have gone meanwhile, such a child
brings back the job's number after the job has ended; until the grace is over, that new job counts
as cancelled too. A grace outlives the daemon: a job that re-attaches to another daemon is sent the
signal again, and SIGKILL when the grace is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tandemd.core.events import JobCancelled, SignalJob
from tandemd.core.model import Cancel, Job
from tandemd.core.words import span_of

KILL = "KILL"
SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", KILL)  # signals that end programs
MOST_GRACE_NS = 86_400 * 10**9


@dataclass(slots=True)
class Cancels:
    """The jobs with a running grace. Pure; belongs to the scheduler."""

    _waiting: dict[int, Cancel] = field(default_factory=dict)  # by job

    @property
    def wake_at_ns(self) -> int | None:
        """When the next grace is over."""
        return min((cancel.kill_at_ns for cancel in self._waiting.values()), default=None)

    def begin(self, event: JobCancelled, job: Job) -> SignalJob:
        """Cancel the job, or replace an earlier cancellation."""
        signal = event.signal if event.grace_ns else KILL
        self._wait(job, Cancel(signal=signal, kill_at_ns=event.now_ns + event.grace_ns))
        grace = "" if signal == KILL else f", and SIGKILL in {span_of(event.grace_ns)}"
        job.tell(event.now_ns, f"cancelled: SIG{signal}{grace}")
        return SignalJob(job_id=job.job_id, signal=signal)

    def come(self, job: Job, before: Job | None, now_ns: int) -> None:
        """Note a new job; `before` is the ended job that had its number, if any."""
        if before and before.cancel and now_ns < before.cancel.kill_at_ns:
            self._wait(job, before.cancel)

    def come_back(self, job: Job, cancel: Cancel | None, now_ns: int) -> None:
        """Take over what an earlier daemon began: the job may have been cancelled under it."""
        if cancel and cancel.signal in SIGNALS:  # another version may know more signals
            self._wait(job, cancel)
            job.tell(now_ns, f"was cancelled before the daemon started: SIG{cancel.signal}")

    def join(self, job: Job, process_id: int) -> Iterator[SignalJob]:
        """Send a new process of a cancelled job the last signal."""
        if job.cancel:
            signal = job.cancel.signal
            yield SignalJob(job_id=job.job_id, signal=signal, process_id=process_id)

    def forget(self, job: Job) -> None:
        """Drop a job that has ended."""
        self._waiting.pop(job.job_id, None)

    def decide(self, jobs: Mapping[int, Job], now_ns: int) -> Iterator[SignalJob]:
        """Kill the jobs whose grace is over."""
        over = [job_id for job_id, c in self._waiting.items() if c.kill_at_ns <= now_ns]
        for job_id in over:
            self._wait(jobs[job_id], replace(self._waiting[job_id], signal=KILL))
            jobs[job_id].tell(now_ns, "still there after its grace period: SIGKILL")
            yield SignalJob(job_id=job_id, signal=KILL)

    def _wait(self, job: Job, cancel: Cancel) -> None:
        job.cancel = cancel
        self._waiting.pop(job.job_id, None)
        if cancel.signal != KILL:
            self._waiting[job.job_id] = cancel


def explain_cancel(job: Job, now_ns: int) -> str | None:
    """How the job is being ended; None: it is not."""
    if job.cancel is None:
        return None
    if job.cancel.signal == KILL:
        return "is being ended by SIGKILL"
    left = span_of(max(0, job.cancel.kill_at_ns - now_ns))
    return f"is being ended: SIG{job.cancel.signal} was sent, SIGKILL follows in {left}"
