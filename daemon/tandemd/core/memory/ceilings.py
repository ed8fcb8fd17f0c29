"""What all jobs of a user together may hold of the memory of each GPU, whatever limits they have.

As the limits of jobs and groups it is kept by telling each process what the others leave it of it
(settings.py), so what two take at the same moment may exceed it until the next look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tandemd.core.memory.memories import memory_of
from tandemd.core.model import NO_LIMIT, Group, Job, JobSpec, Process


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
        size = max(named, key=lambda one: one.size_bytes)
        share = max(named, key=lambda one: one.percent)
        keys = dict.fromkeys(
            one.key for one, said in ((size, size.size_bytes), (share, share.percent)) if said
        )
        return Ceiling(size_bytes=size.size_bytes, percent=share.percent, key=", ".join(keys))


NONE = Ceiling()


class Ceilings:
    """Those of all users whose jobs came. Belongs to the scheduler, whose jobs it reads."""

    def __init__(
        self, jobs: Mapping[int, Job], capacity_bytes: Callable[[], Mapping[int, int]]
    ) -> None:
        self._jobs = jobs
        self._capacity_bytes = capacity_bytes  # by GPU; one that is missing is not known
        self._by_uid: dict[int, Ceiling] = {}
        # By uid and memory, at the last look.
        self._there: dict[tuple[int, int], dict[int, Process]] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._changed: set[int] = set()

    def of(self, uid: int) -> Ceiling:
        """What is so now."""
        return self._by_uid.get(uid, NONE)

    def put(self, uid: int, ceiling: Ceiling) -> None:
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

    def note(self, uid: int) -> None:
        """One of his processes holds more or less than before."""
        if uid in self._by_uid:
            self._changed.add(uid)

    def take_changed(self) -> set[int]:
        """Of which users; they have been told once this was asked."""
        changed, self._changed = self._changed, set()
        return changed

    def look(self) -> None:
        """Take in what everybody holds now, once for many questions."""
        self._there = {}
        if not self._by_uid:
            return
        for job in self._jobs.values():
            if job.uid not in self._by_uid:
                continue
            for number, process in job.processes.items():
                for memory in process.memories:
                    self._there.setdefault((job.uid, memory), {})[number] = process
        self._held = {
            key: sum(process.usage.device_bytes for process in there.values())
            for key, there in self._there.items()
        }

    def sharers(self, uid: int, gpu: int) -> Mapping[int, Process]:
        """His processes with the memory of that GPU, at the last look, by number."""
        return self._there.get((uid, memory_of(gpu)), {})

    def held_bytes(self, uid: int, gpu: int) -> int:
        """What they hold there. Of one on several GPUs it is not known where: it counts on each."""
        return self._held.get((uid, memory_of(gpu)), 0)

    def tightest(self, process: Process, uid: int) -> tuple[int, int] | None:
        """Of its GPUs that where least was left to it at the last look, and what; None: all."""
        own_bytes = process.usage.device_bytes
        lefts = [
            (max(0, most - self.held_bytes(uid, gpu) + own_bytes), gpu)
            for gpu, most in self.on(uid, process.gpus).items()
        ]
        if not lefts:
            return None
        left_bytes, gpu = min(lefts)
        return gpu, left_bytes

    def left(self, process: Process, job: Job, group: Group) -> int:
        """What the limits of its job, its group and its user leave it, at the last look."""
        own_bytes, of_user = left_by_own(process, job, group), self.tightest(process, job.uid)
        return own_bytes if of_user is None else min(own_bytes, of_user[1])

    def in_the_way(self, process: Process, job: Job, group: Group) -> tuple[int, int] | None:
        """Of its GPUs one where the user's leaves it less than all other limits, and the user's."""
        if (found := self.tightest(process, job.uid)) is None:
            return None
        gpu, least_bytes = found
        if least_bytes >= min(left_by_own(process, job, group), process.lease_bytes):
            return None
        return gpu, self.on(job.uid, [gpu])[gpu]


def left_bytes(process: Process, limit_bytes: int, sharers: Mapping[int, Process]) -> int:
    """What these leave the process of a limit, which holds for each GPU by itself.

    Where on its GPUs another has its memory is not known: it counts whole where they meet.
    """
    if limit_bytes >= NO_LIMIT:
        return NO_LIMIT
    others = (p for p in sharers.values() if p is not process and p.gpus & process.gpus)
    return max(0, limit_bytes - sum(p.usage.device_bytes for p in others))


def left_by_own(process: Process, job: Job, group: Group) -> int:
    """What is left to it of the limits of its job and its group."""
    return min(
        left_bytes(process, job.spec.memory_bytes, job.processes),
        left_bytes(process, group.memory_limit_bytes, group.processes),
    )
