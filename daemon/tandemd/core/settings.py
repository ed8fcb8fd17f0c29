"""What each process is told besides its gate: a pure function of the jobs on its island.

Settings change when the set of jobs changes, not when work comes and goes, so they are computed
whole and compared with what was told last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandemd.core.events import (
    Action,
    SetClass,
    SetHonourPresence,
    SetLinger,
    SetMemoryLimit,
    SetPresence,
    SetWindow,
)
from tandemd.core.model import NO_LIMIT, Group, Job, JobClass, Options, Process
from tandemd.core.policy import Policy

PRESENCE_MAX = 64  # shm::kPresenceMax: how many others a process can look at


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a process is told except its gate."""

    job_class: JobClass
    window: tuple[int, int]  # segments, nanoseconds a segment
    looks_at: tuple[int, ...] = ()
    honour: bool = True
    memory_limit_bytes: int = NO_LIMIT
    linger_ns: int = 0

    def changes_from(self, old: Settings | None, process_id: int) -> Iterator[Action]:
        """The actions that turn `old` into this; None = a process that was told nothing yet."""
        if old is None or old.job_class is not self.job_class:
            yield SetClass(process_id=process_id, job_class=self.job_class)
        if old is None or old.window != self.window:
            segments, segment_ns = self.window
            yield SetWindow(process_id=process_id, segments=segments, segment_ns=segment_ns)
        if old is None or old.linger_ns != self.linger_ns:
            yield SetLinger(process_id=process_id, linger_ns=self.linger_ns)
        if old is None or old.memory_limit_bytes != self.memory_limit_bytes:
            yield SetMemoryLimit(process_id=process_id, limit_bytes=self.memory_limit_bytes)
        if old is None or old.honour != self.honour:
            yield SetHonourPresence(process_id=process_id, honour=self.honour)
        if (() if old is None else old.looks_at) != self.looks_at:
            yield SetPresence(process_id=process_id, looks_at=self.looks_at)


def settings_for(
    group: Group, island: list[Group], *, policy: Policy, options: Options, overdue: bool
) -> Iterator[tuple[int, Settings]]:
    """The settings of every process of a group, beside the other groups of its island."""
    shares = len(island) > 1
    segments = options.window_segments if shares and policy.windowed(group) else 0
    for process in group.processes.values():
        yield (
            process.process_id,
            Settings(
                job_class=group.job_class,
                window=(segments, options.segment_ns),
                looks_at=_looks_at(process, group, island, policy, options),
                honour=not overdue,
                memory_limit_bytes=_memory_limit(process, group.jobs[process.job_id]),
                linger_ns=options.linger_ns if group.job_class is JobClass.LATENCY else 0,
            ),
        )


def _looks_at(
    process: Process, group: Group, island: list[Group], policy: Policy, options: Options
) -> tuple[int, ...]:
    peers = [
        (other.job_class, peer.process_id)
        for other in island
        if other is not group
        and policy.yields_to(group, other)
        and (options.presence_across_users or other.key[0] == group.key[0])
        for peer in other.processes.values()
        if peer.mapped and peer.gpu == process.gpu
    ]
    return tuple(process_id for _, process_id in sorted(peers)[:PRESENCE_MAX])


def _memory_limit(process: Process, job: Job) -> int:
    if job.spec.memory_bytes >= NO_LIMIT:
        return NO_LIMIT
    others = (p.usage.device_bytes for p in job.processes.values() if p is not process)
    return max(0, job.spec.memory_bytes - sum(others))
