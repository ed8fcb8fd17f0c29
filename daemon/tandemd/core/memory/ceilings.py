"""What all jobs of a user together may hold of the memory of each GPU, whatever limits they have.

As the limits of jobs and groups it is kept by telling each process what the others leave it of it
(settings.py), so what two take at the same moment may exceed it until the next look at them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tandemd.core.model import NO_LIMIT, Job, JobSpec, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Of each GPU by itself: a size, a share of it, or what is more of both; 0 and 0: none."""

    size_bytes: int = 0
    percent: int = 0
    key: str = ""  # of the configuration that says so

    def of(self, capacity_bytes: int) -> int:
        """In bytes, of a GPU with so many; 0 = not known."""
        if self == NONE or (self.percent and not capacity_bytes):
            return NO_LIMIT
        return max(self.size_bytes, capacity_bytes * self.percent // 100)

    @staticmethod
    def most_generous(named: Sequence[Ceiling]) -> Ceiling:
        """That of who is named by all of them, at least one."""
        if NONE in named:
            return NONE
        return Ceiling(
            size_bytes=max(one.size_bytes for one in named),
            percent=max(one.percent for one in named),
            key=", ".join(one.key for one in named),
        )


NONE = Ceiling()


class Ceilings:
    """Those of all users whose jobs came. Belongs to the scheduler, whose jobs it reads."""

    def __init__(
        self, jobs: Mapping[int, Job], capacity_bytes: Callable[[], Mapping[int, int]]
    ) -> None:
        self._jobs = jobs
        self._capacity_bytes = capacity_bytes  # by GPU; one that is missing is not known
        self._by_uid: dict[int, Ceiling] = {}
        self._held: dict[tuple[int, int], int] = {}  # uid, GPU

    def of(self, uid: int) -> Ceiling:
        """What is so now."""
        return self._by_uid.get(uid, NONE)

    def set(self, uid: int, ceiling: Ceiling) -> None:
        """For what he has, and for what comes."""
        if ceiling == NONE:
            self._by_uid.pop(uid, None)
        else:
            self._by_uid[uid] = ceiling

    def binds(self, uid: int) -> bool:
        """Whether he has one."""
        return uid in self._by_uid

    def on(self, uid: int, gpus: Iterable[int] = ()) -> dict[int, int]:
        """In bytes on each of these GPUs, or on all, of those that have a known one."""
        if uid not in self._by_uid:
            return {}
        ceiling, capacity_bytes = self._by_uid[uid], self._capacity_bytes()
        found = {gpu: ceiling.of(capacity_bytes.get(gpu, 0)) for gpu in gpus or capacity_bytes}
        return {gpu: size_bytes for gpu, size_bytes in found.items() if size_bytes < NO_LIMIT}

    def clip(self, uid: int, spec: JobSpec, gpus: Iterable[int]) -> JobSpec:
        """With no higher limit than the user has on any of these GPUs, or of all."""
        ceiling, capacity_bytes = self.of(uid), self._capacity_bytes()
        percent = spec.memory_percent
        if ceiling.percent and not ceiling.size_bytes:
            percent = min(percent, ceiling.percent)
        sizes = [capacity_bytes.get(gpu, 0) for gpu in gpus or capacity_bytes] or [0]
        size_bytes = spec.memory_bytes
        if size_bytes < NO_LIMIT:
            size_bytes = min(size_bytes, max(map(ceiling.of, sizes)))
        return replace(spec, memory_bytes=size_bytes, memory_percent=percent)

    def processes(self, uid: int) -> dict[int, Process]:
        """All of his, by number."""
        jobs = (job for job in self._jobs.values() if job.uid == uid)
        return {number: process for job in jobs for number, process in job.processes.items()}

    def held_bytes(self, uid: int, gpu: int) -> int:
        """What they hold there. Of one on several GPUs it is not known where: it counts on each."""
        processes = self.processes(uid).values()
        return sum(process.usage.device_bytes for process in processes if gpu in process.gpus)

    def look(self) -> None:
        """Take in what everybody holds now, for `left_bytes`: once for many."""
        held: dict[tuple[int, int], int] = defaultdict(int)
        bound = (job for job in self._jobs.values() if job.uid in self._by_uid)
        for job in bound if self._by_uid else ():
            for process in job.processes.values():
                for gpu in process.gpus:
                    held[job.uid, gpu] += process.usage.device_bytes
        self._held = dict(held)

    def left_bytes(self, process: Process, uid: int) -> int:
        """What the others of the user left the process, at the last look, where least is left."""
        ceilings = self.on(uid, process.gpus).items()
        own_bytes = process.usage.device_bytes
        lefts = (most - self._held.get((uid, gpu), 0) + own_bytes for gpu, most in ceilings)
        return max(0, min(lefts, default=NO_LIMIT))
