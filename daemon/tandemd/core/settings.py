"""Settings of processes besides gate and honour: a pure function of the jobs on their island.

One exception: the memory limit also depends on the jobs of the same user elsewhere.

Settings change when the set of jobs or the expectations of them change, not when work comes and
goes, so they are computed in full and compared with what was told last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandemd.core.events import (
    Action,
    SetClass,
    SetLinger,
    SetMemoryLimit,
    SetMemoryWait,
    SetPresence,
    SetWindow,
)
from tandemd.core.memory.line import MemoryLine
from tandemd.core.model import NO_LIMIT, Group, JobClass, Options, Process
from tandemd.core.policies.policy import Policy
from tandemd.core.turns.forecast import NARROW, narrowed_by

PRESENCE_MAX = 64  # shm::kPresenceMax: how many others a process can look at


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a process that depend on jobs only."""

    job_class: JobClass
    window: tuple[int, int]  # segments, nanoseconds per segment
    looks_at: tuple[int, ...] = ()
    memory_limit_bytes: int = NO_LIMIT
    memory_wait_ns: int = 0
    linger: tuple[int, int] = (0, 0)  # minimum and maximum, nanoseconds

    def changes_from(self, old: Settings | None, process_id: int) -> Iterator[Action]:
        """Yield the actions that turn `old` into this; None = the process was told nothing yet."""
        if old is None or old.job_class is not self.job_class:
            yield SetClass(process_id=process_id, job_class=self.job_class)
        if old is None or old.window != self.window:
            segments, segment_ns = self.window
            yield SetWindow(process_id=process_id, segments=segments, segment_ns=segment_ns)
        if old is None or old.linger != self.linger:
            linger_ns, limit_ns = self.linger
            yield SetLinger(process_id=process_id, linger_ns=linger_ns, limit_ns=limit_ns)
        if old is None or old.memory_limit_bytes != self.memory_limit_bytes:
            yield SetMemoryLimit(process_id=process_id, limit_bytes=self.memory_limit_bytes)
        if (0 if old is None else old.memory_wait_ns) != self.memory_wait_ns:
            yield SetMemoryWait(process_id=process_id, wait_ns=self.memory_wait_ns)
        if (() if old is None else old.looks_at) != self.looks_at:
            yield SetPresence(process_id=process_id, looks_at=self.looks_at)


class Views:
    """Whom the processes of an island look at: the same for all of a class on the same GPUs.

    A policy's `yields_to` depends only on the two classes and the GPUs, and a group has one class,
    so nobody looks at its own group.
    """

    def __init__(
        self, island: list[Group], *, policy: Policy, options: Options, line: MemoryLine
    ) -> None:
        self.shared, self.line = len(island) > 1, line
        self._policy = policy
        self._options = options
        self._by_class: dict[JobClass, list[Group]] = {}
        for group in island:
            self._by_class.setdefault(group.job_class, []).append(group)
        self._known: dict[tuple[JobClass, frozenset[int], int], tuple[int, ...]] = {}
        self._short_gaps = [group for group in island if group.short_gaps]

    def of(self, group: Group, gpus: frozenset[int]) -> tuple[int, ...]:
        """The mapped processes on these GPUs to which the group yields, most urgent first."""
        uid = -1 if self._options.presence_across_users else group.key[0]
        key = (group.job_class, gpus, uid)
        if key not in self._known:
            self._known[key] = tuple(self._look(group, gpus, uid))[:PRESENCE_MAX]
        return self._known[key]

    def window_segments(self, group: Group) -> int:
        """How many segments of the group may be open; 0 = no limit."""
        if not (self.shared and self._policy.windowed(group)):
            return 0
        options = self._options
        narrow = narrowed_by(group, self._short_gaps, policy=self._policy, options=options)
        return NARROW if narrow else options.window_segments

    def _look(self, group: Group, gpus: frozenset[int], uid: int) -> Iterator[int]:
        overlap = self._options.overlaps(gpus)
        for job_class in sorted(self._by_class):
            others = self._by_class[job_class]
            if not self._policy.yields_to(group, others[0], overlap=overlap):
                continue
            yield from sorted(
                process.process_id
                for other in others
                if uid in (-1, other.key[0])
                for process in other.processes.values()
                if process.mapped and process.gpus & gpus
            )


def settings_for(group: Group, views: Views, *, options: Options) -> Iterator[tuple[int, Settings]]:
    """Yield the settings of each process of a group, given the other groups of its island."""
    job_class = group.job_class
    lingers = job_class is JobClass.LATENCY
    segments = views.window_segments(group)
    for process in group.processes.values():
        yield (
            process.process_id,
            Settings(
                job_class=job_class,
                window=(segments, options.segment_ns),
                looks_at=views.of(group, process.gpus),
                memory_limit_bytes=memory_limit(process, group, views.line),
                memory_wait_ns=group.jobs[process.job_id].patience_ns,
                linger=(options.linger_ns, options.linger_limit_ns) if lingers else (0, 0),
            ),
        )


def has_siblings(group: Group) -> bool:
    """Tell whether memory that one of its processes holds reduces the limits of the others."""
    if len(group.processes) < 2:
        return False
    limits = (job.spec.memory_bytes for job in group.jobs.values())
    return min(group.memory_limit_bytes, *limits) < NO_LIMIT


def memory_limit(process: Process, group: Group, line: MemoryLine) -> int:
    """What others leave it of the limits of its job, group and user, on each GPU separately.

    The limit never exceeds what jobs can have; reserves.py tells what all others leave of that.
    """
    left_bytes = line.ceilings.left(process, group.jobs[process.job_id], group)
    return min(left_bytes, line.reserves.limit_bytes(process))
