"""Programs that asked for it hear of a pause before their job is held, and may do something first.

Such as write a checkpoint, for which they need the GPU that the pause takes from them. The job is
held once all of its processes that listen have said that they are ready, or the grace is over. A
process says itself that it listens (shim/tandem_mark.h): a hint, which buys it no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tandemd.core.events import JobPaused, TellPause
from tandemd.core.model import Job, Notice
from tandemd.core.words import counted, span_of

MOST_GRACE_NS = 3600 * 10**9


class Notices:
    """Who was told, and is not held yet. Pure; belongs to the scheduler."""

    def __init__(self) -> None:
        self._told: dict[int, Notice] = {}  # by job

    @property
    def wake_at_ns(self) -> int | None:
        """When the next grace is over."""
        return min((notice.until_ns for notice in self._told.values()), default=None)

    def begin(self, event: JobPaused, job: Job) -> list[TellPause]:
        """Tell the programs of a job of its pause; empty: nobody listens, or there is no time."""
        listeners = [p for p in job.processes.values() if p.usage.listens]
        if job.paused or not event.grace_ns or not listeners:
            return []
        until_ns = event.now_ns + event.grace_ns
        if job.notice is not None:  # a second wish may only shorten the first
            until_ns = min(until_ns, job.notice.until_ns)
        # Another daemon's pauses have other numbers: a program may still know one.
        number = event.now_ns // 1_000_000 % 0xFFFFFFFF + 1 if not job.notice else job.notice.number
        self._told[job.job_id] = job.notice = Notice(number=number, until_ns=until_ns)
        left, who = span_of(until_ns - event.now_ns), counted(len(listeners), "program")
        job.tell(event.now_ns, f"is to be paused: {who} told, and held in {left} at most")
        return [TellPause(process_id=p.process_id, number=number) for p in listeners]

    def over(self, jobs: Mapping[int, Job], now_ns: int) -> list[Job]:
        """Jobs that are to be held now."""
        told = ((jobs[job_id], notice) for job_id, notice in self._told.items())
        return [job for job, notice in told if _is_over(job, notice, now_ns)]

    def end(self, job: Job) -> None:
        """It is held now, or not any more to be."""
        self._told.pop(job.job_id, None)
        job.notice = None

    def withdraw(self, job: Job) -> Iterator[TellPause]:
        """It goes on: who was told of a pause hears that it is over."""
        self.end(job)
        for process in job.processes.values():
            if process.usage.listens:
                yield TellPause(process_id=process.process_id, number=0)


def _is_over(job: Job, told: Notice, now_ns: int) -> bool:
    return now_ns >= told.until_ns or not waited_for(job, told)


def listening_lines(job: Job) -> list[str]:
    """That there are programs which hear of a pause; nothing where there are none."""
    count = sum(process.usage.listens for process in job.processes.values())
    return [f"before a pause {counted(count, 'program')} of it may do something"] if count else []


def waited_for(job: Job, told: Notice) -> int:
    """How many of its processes listen and are not ready yet."""
    usages = [process.usage for process in job.processes.values()]
    return sum(usage.listens and usage.pause_ready != told.number for usage in usages)


def pause_in_ns(job: Job, now_ns: int) -> int | None:
    """So long its programs have at most before it is held; None: it is not about to be."""
    return None if job.notice is None else max(0, job.notice.until_ns - now_ns)


def explain_notice(job: Job, now_ns: int) -> str | None:
    """What it is still let do before it is held; None: nothing, nobody pauses it."""
    if job.notice is None:
        return None
    left = span_of(max(0, job.notice.until_ns - now_ns))
    who = counted(waited_for(job, job.notice), "program")
    return f"is to be paused: {who} of it may do something before, for {left} more at most"
