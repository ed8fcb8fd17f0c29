"""One look at a job: what the rules know of it at one moment. A copy without live references.

Counters grow as long as the job's processes stay. When one leaves, a figure may fall, which rules
take for "not known". All figures except turns and holds are what processes report of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandemd.core.model import NO_LIMIT, Group, Job, JobClass, Usage, WaitReason
from tandemd.core.watchdog.rivalry import Rivalry

HELD_BACK = (WaitReason.GATE, WaitReason.WINDOW, WaitReason.PRESENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look found. Times are nanoseconds of the attach clock."""

    now_ns: int
    job_class: JobClass = JobClass.NORMAL
    # Counters.
    launches: int = 0
    iterations: int = 0  # of the process that has most: marked, or else found
    exclusive_ns: int = 0  # time in which the GPU had work of this job alone
    shared_ns: int = 0  # its equal part of time in which the GPU had work of others, too
    held_back_ns: int = 0  # time its threads waited at gate, window or presence
    alloc_count: int = 0  # allocations from the device; those served from a pool do not count
    work_ns: int = 0  # predicted GPU time of what it submitted
    timed_count: int = 0  # submissions that have such a prediction
    turns: int = 0  # times its gate opened for it after it was held
    owed_ns: float = 0.0  # GPU time its group was owed while it had to wait for others
    served_ns: int = 0  # GPU time of its group
    island_served_ns: int = 0  # of all groups it competes with, itself included
    # The present state.
    busy: bool = False  # the GPU has work of it
    open_segments: int = 0
    waiting: frozenset[WaitReason] = frozenset()
    waiting_since_ns: int = 0
    paused: bool = False
    gate_open: bool = True
    held_since_ns: int | None = None  # since when its gate is closed although it has work
    max_hold_ns: int = 0
    quantum_ns: int = 0  # of a turn; 0 = turns do not end
    rivals: int = 0  # other groups that take turns and want the GPU
    owed_share: float = 0.0  # of the GPU's time, 0..1; 0 = nothing is promised
    device_bytes: int = 0
    iteration_bytes: int = 0  # device memory when its newest iteration ended; 0 = none has
    iteration_ns: int = 0  # usual length of the iterations found; 0 = none is found
    room_bytes: int | None = None  # left of its limit or of the device; None = not known

    @property
    def progress(self) -> tuple[int, ...]:
        """Changes whenever something was submitted or completed."""
        return self.launches, self.iterations, self.open_segments, self.alloc_count

    @property
    def is_idle(self) -> bool:
        """True if the GPU has nothing of it and no thread waits."""
        return not self.busy and not self.waiting


def look_at(
    job: Job,
    group: Group,
    rivalry: Rivalry,
    *,
    before: Look | None,
    room_bytes: int | None,
    now_ns: int,
) -> Look:
    """Look at a living job with processes; `room_bytes` is what its device has left."""
    usages = [process.usage for process in job.processes.values()]
    waited_ns = job.waited_ns(now_ns)
    waiting = [usage for usage in usages if usage.waiting_threads]
    return Look(
        now_ns=now_ns,
        job_class=job.spec.job_class,
        launches=job.launches,
        iterations=max(_iterations(usage) for usage in usages),
        exclusive_ns=sum(usage.exclusive_ns for usage in usages),
        shared_ns=sum(usage.even_ns for usage in usages),
        held_back_ns=sum(waited_ns[reason] for reason in HELD_BACK),
        alloc_count=sum(usage.alloc_count for usage in usages),
        work_ns=sum(usage.work_ns for usage in usages),
        timed_count=sum(usage.timed_count for usage in usages),
        turns=group.turns,
        owed_ns=before.owed_ns + before.owed_share * (now_ns - before.now_ns) if before else 0.0,
        served_ns=group.served_ns,
        island_served_ns=rivalry.served_ns,
        busy=any(usage.busy for usage in usages),
        open_segments=sum(usage.open_segments for usage in usages),
        waiting=frozenset(reason for usage in usages for reason in _reasons(usage)),
        waiting_since_ns=min((usage.wait_since_ns for usage in waiting), default=0),
        paused=group.paused,
        gate_open=group.open,
        held_since_ns=group.hold_since_ns,
        max_hold_ns=rivalry.max_hold_ns,
        quantum_ns=rivalry.quantum_ns,
        rivals=rivalry.rivals_of(group),
        owed_share=rivalry.owed_share(group),
        device_bytes=sum(usage.device_bytes for usage in usages),
        iteration_bytes=sum(usage.iteration_bytes for usage in usages),
        iteration_ns=max(usage.iteration_ns for usage in usages),
        room_bytes=_room(job, usages, room_bytes),
    )


def _reasons(usage: Usage) -> Iterator[WaitReason]:
    if usage.waiting_threads:
        yield usage.wait_reason
    if usage.memory_wait:
        yield WaitReason.MEMORY


def _iterations(usage: Usage) -> int:
    return usage.steps or usage.iterations


def _room(job: Job, usages: list[Usage], device_room_bytes: int | None) -> int | None:
    if job.spec.memory_bytes >= NO_LIMIT:
        return device_room_bytes
    left_bytes = max(0, job.spec.memory_bytes - sum(usage.device_bytes for usage in usages))
    return left_bytes if device_room_bytes is None else min(left_bytes, device_room_bytes)
