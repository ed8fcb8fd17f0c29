"""Notice of a pause to programs that asked for it, so that they can act before they are held.

A program may, for example, write a checkpoint, for which it needs the GPU that the pause takes
away. Groups are held as one: when one job of a group is paused, all listening processes of the
group are told, and the pause waits until each has said that it is ready or the grace is over. That
a process listens is its own claim (shim/tandem_mark.h), a hint that gains it nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tandemd.core.events import JobPaused, TellPause
from tandemd.core.model import Group, Job, Notice, Process
from tandemd.core.words import counted, span_of

GroupOf = Callable[[Job], Group]

MOST_GRACE_NS = 3600 * 10**9
AGAIN_NS = 30 * 10**9  # for programs that ran on without a daemon
_NUMBERS = 0xFFFFFFFF  # of pauses; 0 = no pause


class Notices:
    """Pauses that were announced and have not begun. Pure; belongs to the scheduler."""

    def __init__(self) -> None:
        self._given: dict[int, Notice] = {}  # by job
        self._told: dict[int, int] = {}  # by process: the pause it knows of
        self._newest = 0

    @property
    def wake_at_ns(self) -> int | None:
        """When the next grace is over."""
        return min((notice.until_ns for notice in self._given.values()), default=None)

    def begin(self, event: JobPaused, job: Job, group: Group) -> bool:
        """Announce a pause; False if nobody listens, there is no grace, or it is held already."""
        listeners, was_told = _listeners(group), event.told is not None
        if group.paused or not event.grace_ns or not (listeners or was_told):
            return False
        until_ns = event.now_ns + event.grace_ns
        if job.notice is not None:  # a second request can only shorten the grace
            until_ns = min(until_ns, job.notice.until_ns)
        given = next((one.notice for one in group.jobs.values() if one.notice), None)
        number = event.told or self._number(event.now_ns) if given is None else given.number
        job.pause_number = number
        job.notice = Notice(number=number, until_ns=until_ns, is_awaited=was_told)
        self._given[job.job_id] = job.notice
        left, who = span_of(until_ns - event.now_ns), counted(len(listeners), "program")
        job.tell(event.now_ns, f"is to be paused: {who} told, and held within {left}")
        return True

    def _number(self, now_ns: int) -> int:
        """Return a number that no program can know yet, not even from an earlier daemon."""
        self._newest = max(self._newest + 1, now_ns // 1_000_000)
        return self._newest % _NUMBERS + 1

    def tell(self, jobs: Mapping[int, Job], group_of: GroupOf) -> Iterator[TellPause]:
        """Tell listeners that do not know of a pause yet; a process may begin to listen late."""
        for job_id, notice in self._given.items():
            for process in _listeners(group_of(jobs[job_id])):
                if self._told.get(process.process_id) != notice.number:
                    self._told[process.process_id] = notice.number
                    yield TellPause(process_id=process.process_id, number=notice.number)

    def over(self, jobs: Mapping[int, Job], group_of: GroupOf, now_ns: int) -> list[Job]:
        """Jobs to be held now; when the first job of a group is held, the whole group is."""
        found = []
        for job_id, notice in self._given.items():
            group = group_of(jobs[job_id])
            # A group without processes is about to end and need not be held.
            has_come = bool(_listeners(group)) if notice.is_awaited else bool(group.processes)
            is_ready = has_come and not waited_for(group, notice)
            if group.paused or now_ns >= notice.until_ns or is_ready:
                found.append(jobs[job_id])
        return found

    def end(self, job: Job) -> None:
        """End the notice: the job is held now, or no longer to be paused."""
        self._given.pop(job.job_id, None)
        job.notice = None

    def withdraw(self, group: Group) -> Iterator[TellPause]:
        """After a job resumes: once nobody pauses the group, tell those who know of a pause."""
        if group.paused or any(job.notice for job in group.jobs.values()):
            return
        for process_id in group.processes:
            if self._told.pop(process_id, None) is not None:
                yield TellPause(process_id=process_id, number=0)

    def forget(self, process_id: int) -> None:
        """Drop a process that has ended."""
        self._told.pop(process_id, None)


def _listeners(group: Group) -> list[Process]:
    return [process for process in group.processes.values() if process.usage.listens]


def notice_of(job: Job) -> Notice | None:
    """What another daemon must know of the pause; `until_ns` is 0 if the job is held already."""
    if job.notice is not None or not (job.paused and job.pause_number):
        return job.notice
    return Notice(number=job.pause_number, until_ns=0)


def paused_again(job_id: int, notice: Notice | None, now_ns: int) -> JobPaused:
    """Restore the pause of a job that an earlier daemon had paused or was about to pause.

    A running grace continues. A held job ran on while there was no daemon, so its preparations are
    outdated: it is told again.
    """
    if notice is None:
        return JobPaused(now_ns=now_ns, job_id=job_id)
    if not notice.until_ns:
        return JobPaused(now_ns=now_ns, job_id=job_id, grace_ns=AGAIN_NS, told=0)
    left_ns = max(0, notice.until_ns - now_ns)
    return JobPaused(now_ns=now_ns, job_id=job_id, grace_ns=left_ns, told=notice.number)


def listening_lines(job: Job) -> list[str]:
    """A line about programs that get notice of a pause; empty if there are none."""
    count = sum(process.usage.listens for process in job.processes.values())
    return (
        [f"before a pause, {counted(count, 'program')} of it can prepare for it"] if count else []
    )


def waited_for(group: Group, notice: Notice) -> int:
    """How many of its processes listen and are not ready yet."""
    return sum(one.usage.pause_ready != notice.number for one in _listeners(group))


def pause_in_ns(job: Job, now_ns: int) -> int | None:
    """Time its programs have left before it is held; None: no pause is coming."""
    return None if job.notice is None else max(0, job.notice.until_ns - now_ns)


def explain_notice(job: Job, group: Group, now_ns: int) -> str | None:
    """What may still happen before the job is held; None: no pause is coming."""
    left_ns = pause_in_ns(job, now_ns)
    if job.notice is None or left_ns is None:
        return None
    who = counted(waited_for(group, job.notice), "program")
    return f"is to be paused: {who} can prepare for it, for at most {span_of(left_ns)} more"
