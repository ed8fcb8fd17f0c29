"""Jobs that somebody ends: a signal at once, and SIGKILL for what is still there after the grace.

What joins such a job is sent what was sent last: a child that was forked before, and uses the GPU
only now. Where all others have gone meanwhile, it comes back under the number of a job that has
ended; until the grace is over that is the job which is to end. A grace outlives the daemon: what
comes back to another one is sent the signal again, and SIGKILL when the grace is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tandemd.core.events import JobCancelled, SignalJob
from tandemd.core.model import Cancel, Job
from tandemd.core.words import span_of

KILL = "KILL"
SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", KILL)  # those that programs end by
MOST_GRACE_NS = 86_400 * 10**9


@dataclass(slots=True)
class Cancels:
    """Who has a grace. Pure; belongs to the scheduler."""

    _waiting: dict[int, Cancel] = field(default_factory=dict)  # by job

    @property
    def wake_at_ns(self) -> int | None:
        """When the next grace is over."""
        return min((cancel.kill_at_ns for cancel in self._waiting.values()), default=None)

    def begin(self, event: JobCancelled, job: Job) -> SignalJob:
        """Somebody ends the job, or ends it otherwise than before."""
        signal = event.signal if event.grace_ns else KILL
        self._wait(job, Cancel(signal=signal, kill_at_ns=event.now_ns + event.grace_ns))
        grace = "" if signal == KILL else f", and SIGKILL in {span_of(event.grace_ns)}"
        job.tell(event.now_ns, f"cancelled: SIG{signal}{grace}")
        return SignalJob(job_id=job.job_id, signal=signal)

    def come(self, job: Job, before: Job | None, now_ns: int) -> None:
        """A job began; `before` has ended, and had its number."""
        if before and before.cancel and now_ns < before.cancel.kill_at_ns:
            self._wait(job, before.cancel)

    def come_back(self, job: Job, cancel: Cancel | None, now_ns: int) -> None:
        """It was here under a daemon before this one, which may have begun to end it."""
        if cancel and cancel.signal in SIGNALS:  # another version may know more
            self._wait(job, cancel)
            job.tell(now_ns, f"was cancelled before the daemon started: SIG{cancel.signal}")

    def join(self, job: Job, process_id: int) -> Iterator[SignalJob]:
        """A process of the job came."""
        if job.cancel:
            signal = job.cancel.signal
            yield SignalJob(job_id=job.job_id, signal=signal, process_id=process_id)

    def forget(self, job: Job) -> None:
        """It has ended."""
        self._waiting.pop(job.job_id, None)

    def decide(self, jobs: Mapping[int, Job], now_ns: int) -> Iterator[SignalJob]:
        """Whose grace is over."""
        over = [job_id for job_id, c in self._waiting.items() if c.kill_at_ns <= now_ns]
        for job_id in over:
            self._wait(jobs[job_id], replace(self._waiting[job_id], signal=KILL))
            jobs[job_id].tell(now_ns, "is still there after its grace: SIGKILL")
            yield SignalJob(job_id=job_id, signal=KILL)

    def _wait(self, job: Job, cancel: Cancel) -> None:
        job.cancel = cancel
        self._waiting.pop(job.job_id, None)
        if cancel.signal != KILL:
            self._waiting[job.job_id] = cancel


def explain_cancel(job: Job, now_ns: int) -> str | None:
    """What is done to end it; None: nobody does."""
    if job.cancel is None:
        return None
    if job.cancel.signal == KILL:
        return "is being ended by SIGKILL"
    left = span_of(max(0, job.cancel.kill_at_ns - now_ns))
    return f"is being ended: SIG{job.cancel.signal} was sent, SIGKILL follows in {left}"
