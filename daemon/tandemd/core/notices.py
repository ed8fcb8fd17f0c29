"""Programs that asked for it hear of a pause before they are held, and may do something first.

Such as write a checkpoint, for which they need the GPU that the pause takes from them. Groups are
held as one, so all processes of a group that listen are told when one of its jobs is paused, and
waited for: until each has said that it is ready, or the grace is over. A process says itself that
it listens (shim/tandem_mark.h): a hint, which buys it no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tandemd.core.events import JobPaused, TellPause
from tandemd.core.model import Group, Job, Notice, Process
from tandemd.core.words import counted, span_of

GroupOf = Callable[[Job], Group]

MOST_GRACE_NS = 3600 * 10**9
AGAIN_NS = 30 * 10**9  # for those that went on without a daemon
_NUMBERS = 0xFFFFFFFF  # of pauses; 0 is none


class Notices:
    """Who was told, and is not held yet. Pure; belongs to the scheduler."""

    def __init__(self) -> None:
        self._given: dict[int, Notice] = {}  # by job
        self._told: dict[int, int] = {}  # by process: of which pause it knows
        self._newest = 0

    @property
    def wake_at_ns(self) -> int | None:
        """When the next grace is over."""
        return min((notice.until_ns for notice in self._given.values()), default=None)

    def begin(self, event: JobPaused, job: Job, group: Group) -> bool:
        """Whether it is to be held later; else nobody listens, there is no time, or it is held."""
        listeners, was_told = _listeners(group), event.told is not None
        if group.paused or not event.grace_ns or not (listeners or was_told):
            return False
        until_ns = event.now_ns + event.grace_ns
        if job.notice is not None:  # a second wish may only shorten the first
            until_ns = min(until_ns, job.notice.until_ns)
        given = next((one.notice for one in group.jobs.values() if one.notice), None)
        number = event.told or self._number(event.now_ns) if given is None else given.number
        job.pause_number = number
        job.notice = Notice(number=number, until_ns=until_ns, is_awaited=was_told)
        self._given[job.job_id] = job.notice
        left, who = span_of(until_ns - event.now_ns), counted(len(listeners), "program")
        job.tell(event.now_ns, f"is to be paused: {who} told, and held in {left} at most")
        return True

    def _number(self, now_ns: int) -> int:
        """Another than any that a program may know still, of this daemon or one before it."""
        self._newest = max(self._newest + 1, now_ns // 1_000_000)
        return self._newest % _NUMBERS + 1

    def tell(self, jobs: Mapping[int, Job], group_of: GroupOf) -> Iterator[TellPause]:
        """Who is to hear of a pause and has not yet: it may begin to listen meanwhile."""
        for job_id, notice in self._given.items():
            for process in _listeners(group_of(jobs[job_id])):
                if self._told.get(process.process_id) != notice.number:
                    self._told[process.process_id] = notice.number
                    yield TellPause(process_id=process.process_id, number=notice.number)

    def over(self, jobs: Mapping[int, Job], group_of: GroupOf, now_ns: int) -> list[Job]:
        """Jobs that are to be held now: with the first of a group all of it is."""
        found = []
        for job_id, notice in self._given.items():
            group = group_of(jobs[job_id])
            # One without processes is about to end, and need not be held for that.
            has_come = bool(_listeners(group)) if notice.is_awaited else bool(group.processes)
            is_ready = has_come and not waited_for(group, notice)
            if group.paused or now_ns >= notice.until_ns or is_ready:
                found.append(jobs[job_id])
        return found

    def end(self, job: Job) -> None:
        """It is held now, or not any more to be."""
        self._given.pop(job.job_id, None)
        job.notice = None

    def withdraw(self, group: Group) -> Iterator[TellPause]:
        """A job of it goes on: once nobody pauses one, all who know of a pause hear of its end."""
        if group.paused or any(job.notice for job in group.jobs.values()):
            return
        for process_id in group.processes:
            if self._told.pop(process_id, None) is not None:
                yield TellPause(process_id=process_id, number=0)

    def forget(self, process_id: int) -> None:
        """It has ended."""
        self._told.pop(process_id, None)


def _listeners(group: Group) -> list[Process]:
    return [process for process in group.processes.values() if process.usage.listens]


def notice_of(job: Job) -> Notice | None:
    """What another daemon has to know of its pause: until 0 where it is held already."""
    if job.notice is not None or not (job.paused and job.pause_number):
        return job.notice
    return Notice(number=job.pause_number, until_ns=0)


def paused_again(job_id: int, notice: Notice | None, now_ns: int) -> JobPaused:
    """A job that a daemon before this one paused, or was about to, is here again.

    What was under way goes on. Who was held went on as long as no daemon was there, and what it
    did before the pause no longer fits: it is told again.
    """
    if notice is None:
        return JobPaused(now_ns=now_ns, job_id=job_id)
    if not notice.until_ns:
        return JobPaused(now_ns=now_ns, job_id=job_id, grace_ns=AGAIN_NS, told=0)
    left_ns = max(0, notice.until_ns - now_ns)
    return JobPaused(now_ns=now_ns, job_id=job_id, grace_ns=left_ns, told=notice.number)


def listening_lines(job: Job) -> list[str]:
    """That there are programs which hear of a pause; nothing where there are none."""
    count = sum(process.usage.listens for process in job.processes.values())
    return [f"before a pause {counted(count, 'program')} of it may do something"] if count else []


def waited_for(group: Group, notice: Notice) -> int:
    """How many of its processes listen and are not ready yet."""
    return sum(one.usage.pause_ready != notice.number for one in _listeners(group))


def pause_in_ns(job: Job, now_ns: int) -> int | None:
    """So long its programs have at most before it is held; None: it is not about to be."""
    return None if job.notice is None else max(0, job.notice.until_ns - now_ns)


def explain_notice(job: Job, group: Group, now_ns: int) -> str | None:
    """What may still be done before it is held; None: nothing, nobody pauses it."""
    left_ns = pause_in_ns(job, now_ns)
    if job.notice is None or left_ns is None:
        return None
    who = counted(waited_for(group, job.notice), "program")
    return f"is to be paused: {who} may do something before, for {span_of(left_ns)} more at most"
