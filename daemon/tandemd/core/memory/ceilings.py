"""Limits on what all jobs of one user together may hold on each GPU, whatever their own limits.

Like the limits of jobs and groups, a ceiling is enforced by telling each process what the others
leave it (settings.py). Two processes that allocate at the same moment may therefore exceed it until
the next look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tandemd.core.memory.memories import memory_of
from tandemd.core.model import NO_LIMIT, Group, Job, JobSpec, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A limit on each GPU by itself: a size, a percentage, or the larger of the two.

    0 and 0: none.
    """

    size_bytes: int = 0
    percent: int = 0
    key: str = ""  # the configuration key that sets it

    def of(self, capacity_bytes: int) -> int:
        """Return the ceiling in bytes on a GPU with this capacity (0 = not known)."""
        if self == NONE or (self.percent and not capacity_bytes):
            return NO_LIMIT
        return max(self.size_bytes, capacity_bytes * self.percent // 100)

    @staticmethod
    def most_generous(named: Sequence[Ceiling]) -> Ceiling:
        """Return the ceiling of a user to whom all of `named` apply (at least one)."""
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
    """The ceilings of all users whose jobs came. Belongs to the scheduler, whose jobs it reads."""

    def __init__(
        self, jobs: Mapping[int, Job], capacity_bytes: Callable[[], Mapping[int, int]]
    ) -> None:
        self._jobs = jobs
        self._capacity_bytes = capacity_bytes  # by GPU; missing = not known
        self._by_uid: dict[int, Ceiling] = {}
        # By uid and memory, as of the last look.
        self._there: dict[tuple[int, int], dict[int, Process]] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._changed: set[int] = set()

    def of(self, uid: int) -> Ceiling:
        """Return the ceiling that holds for the user now."""
        return self._by_uid.get(uid, NONE)

    def put(self, uid: int, ceiling: Ceiling) -> None:
        """Set the user's ceiling, for jobs that are there and for those to come."""
        if ceiling == NONE:
            self._by_uid.pop(uid, None)
        else:
            self._by_uid[uid] = ceiling

    def binds(self, uid: int) -> bool:
        """Tell whether the user has a ceiling."""
        return uid in self._by_uid

    def on(self, uid: int, gpus: Iterable[int] = ()) -> dict[int, int]:
        """Return the user's ceiling in bytes on each of these GPUs (or all), where it is known."""
        if uid not in self._by_uid:
            return {}
        ceiling, capacity_bytes = self._by_uid[uid], self._capacity_bytes()
        found = {gpu: ceiling.of(capacity_bytes.get(gpu, 0)) for gpu in gpus or capacity_bytes}
        return {gpu: size_bytes for gpu, size_bytes in found.items() if size_bytes < NO_LIMIT}

    def clip(self, uid: int, spec: JobSpec, gpus: Iterable[int]) -> JobSpec:
        """Return the spec with its limits capped at the user's ceiling on these GPUs, or on all."""
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
        """Note that one of the user's processes holds more or less than before."""
        if uid in self._by_uid:
            self._changed.add(uid)

    def take_changed(self) -> set[int]:
        """Return the users whose usage changed since the last call; the caller then tells them."""
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
        """Return, by number, the user's processes in that GPU's memory, as of the last look."""
        return self._there.get((uid, memory_of(gpu)), {})

    def held_bytes(self, uid: int, gpu: int) -> int:
        """Return what those processes hold there; one on several GPUs counts on each of them."""
        return self._held.get((uid, memory_of(gpu)), 0)

    def tightest(self, process: Process, uid: int) -> tuple[int, int] | None:
        """Return the GPU that left the process least, and how much; None: no ceiling applies.

        As of the last look.
        """
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
        """Return what the limits of its job, group and user leave the process at the last look."""
        own_bytes, of_user = left_by_own(process, job, group), self.tightest(process, job.uid)
        return own_bytes if of_user is None else min(own_bytes, of_user[1])

    def in_the_way(self, process: Process, job: Job, group: Group) -> tuple[int, int] | None:
        """Return a GPU where the user's ceiling is what binds the process, and that ceiling.

        None if another limit leaves it no more.
        """
        if (found := self.tightest(process, job.uid)) is None:
            return None
        gpu, least_bytes = found
        if least_bytes >= min(left_by_own(process, job, group), process.lease_bytes):
            return None
        return gpu, self.on(job.uid, [gpu])[gpu]


def left_bytes(process: Process, limit_bytes: int, sharers: Mapping[int, Process]) -> int:
    """Return what these other processes leave of a limit, which holds for each GPU by itself.

    It is not known where on its GPUs a process has its memory: all of it counts on every GPU it
    shares with `process`.
    """
    if limit_bytes >= NO_LIMIT:
        return NO_LIMIT
    others = (p for p in sharers.values() if p is not process and p.gpus & process.gpus)
    return max(0, limit_bytes - sum(p.usage.device_bytes for p in others))


def left_by_own(process: Process, job: Job, group: Group) -> int:
    """Return what the limits of its job and its group leave the process."""
    return min(
        left_bytes(process, job.spec.memory_bytes, job.processes),
        left_bytes(process, group.memory_limit_bytes, group.processes),
    )
