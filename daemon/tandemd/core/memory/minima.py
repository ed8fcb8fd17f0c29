"""Limits and promises of memory in bytes: shares of a GPU, and minima.

The minima of the jobs on a GPU never add up to more than it has. A job that is registered and on no
GPU yet may come to any of them; until then it is counted where most is left, but not for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from tandemd.core.memory.ceilings import Ceilings
from tandemd.core.memory.memories import memory_of
from tandemd.core.model import NO_LIMIT, Job, JobSpec
from tandemd.core.words import size_of, sizes_apart

LAPSE_NS = 300_000_000_000  # from `tandem run` to the first use of the GPU it may take a while


def gpus_of(job: Job) -> frozenset[int]:
    """The GPUs its processes use."""
    return frozenset(gpu for process in job.processes.values() for gpu in process.gpus)


def most_held_bytes(job: Job) -> int:
    """What its processes hold on one of its GPUs, at most: its limit is one for each by itself."""
    held: dict[int, int] = defaultdict(int)
    for process in job.processes.values():
        for gpu in process.gpus:  # where on several it has its memory is not known
            held[gpu] += process.usage.device_bytes
    return max(held.values(), default=0)


def share_bytes(percent: int, job: Job, capacity_bytes: Mapping[int, int]) -> int | None:
    """A share of the GPU that the job's first process is on, counted as the shim does.

    Of a job without processes it is one of any GPU, if they are all alike. None: not known.
    """
    first = next(iter(job.processes.values()), None)
    gpus = list(capacity_bytes) if first is None else [first.gpu]
    sizes = {capacity_bytes.get(gpu) for gpu in gpus}
    size_bytes = sizes.pop() if len(sizes) == 1 else None
    return None if size_bytes is None else size_bytes // 100 * percent


def no_limit(spec: JobSpec, gpus: frozenset[int], capacity_bytes: Mapping[int, int]) -> str:
    """Why its limit limits nothing on any of `gpus`, or of all; empty: it does, or it has none."""
    sizes = _sizes(gpus, capacity_bytes)
    limit_bytes, most_bytes = spec.memory_bytes, max(sizes, default=0)
    if limit_bytes == NO_LIMIT or not sizes or not all(sizes) or limit_bytes <= most_bytes:
        return ""
    limit, most = sizes_apart(limit_bytes, most_bytes)
    return f"{limit} is more than the {most} that the gpu has"


def _sizes(gpus: frozenset[int], capacity_bytes: Mapping[int, int]) -> list[int]:
    """Of these GPUs, or of all, if none is named; 0 = not known."""
    return [capacity_bytes.get(gpu, 0) for gpu in gpus or capacity_bytes]


class Room:
    """What promises leave of each GPU whose size is known, or of what a user may have there."""

    def __init__(
        self,
        capacity_bytes: Mapping[int, int],
        promised: Iterable[Job] = (),
        *,
        key: str = "",
        kept_free: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """`key`: of the configuration that says what he may have.

        `kept_free`: bytes that a GPU has besides, for none of the jobs.
        """
        self.capacity_bytes, self.key, self.kept_free = capacity_bytes, key, kept_free
        self._left = {memory_of(gpu): size_bytes for gpu, size_bytes in capacity_bytes.items()}
        for job in promised:
            self.take(job)

    def take(self, job: Job) -> None:
        """Count the minimum of one more."""
        memories = set(map(memory_of, gpus_of(job)))
        if not job.processes and self._left:
            memories = {max(self._left, key=self._left.__getitem__)}
        for memory in memories & self._left.keys():
            self._left[memory] -= job.spec.memory_min_bytes

    def left_bytes(self, gpu: int) -> int:
        """Of a GPU whose size is known."""
        return self._left[memory_of(gpu)]


def never_fits(spec: JobSpec, gpus: frozenset[int], capacity_bytes: Mapping[int, int]) -> bool:
    """Whether no GPU of `gpus`, or of all, has the minimum that it asks for, even alone."""
    sizes = _sizes(gpus, capacity_bytes)
    return bool(sizes) and all(0 < size < spec.memory_min_bytes for size in sizes)


def objection(
    spec: JobSpec,
    room: Room,
    gpus: frozenset[int] = frozenset(),
    *,
    name: Callable[[int], str] = str,
) -> str | None:
    """Why a minimum cannot be promised on all of `gpus`, or on none there is; None if it can.

    `name`: what people call a GPU.
    """
    minimum, capacity_bytes = spec.memory_min_bytes, room.capacity_bytes
    if minimum > spec.memory_bytes and not room.key:
        least, most = sizes_apart(minimum, spec.memory_bytes)
        return (
            f"its minimum of {least} is more than its limit of {most}; "
            "lower the minimum, or raise the limit"
        )
    meant = gpus & capacity_bytes.keys() if gpus else capacity_bytes.keys()
    rooms = sorted((room.left_bytes(gpu), gpu) for gpu in meant)
    if not minimum or not rooms:
        return None
    left, gpu = rooms[0] if gpus else rooms[-1]
    if minimum <= left:
        return None
    promised = capacity_bytes[gpu] - left
    later = ", or try again later" if minimum <= capacity_bytes[gpu] else ""
    most = size_of(capacity_bytes[gpu])
    kept_free = room.kept_free.get(gpu, 0)
    beside = f" beside the {size_of(kept_free)} kept free" if kept_free else ""
    whole, whom = f"gpu {name(gpu)} has {most}{beside}", "others"
    if room.key:
        whole = f"its user may have {most} of gpu {name(gpu)} ({room.key})"
        whom = "others of his jobs"
    if promised or not room.key:
        whole += f", {size_of(promised)} of it promised to {whom}"
    return f"its minimum of {size_of(minimum)} does not fit: {whole}; lower the minimum{later}"


class Minima:
    """Living jobs that have one: most have none, and are to cost nothing as they come and go.

    A job without a process is promised nothing for ever: after `LAPSE_NS` others may be, and it
    comes after them when a process of it does.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}  # those that came first are first
        self._noted_ns: dict[int, int] = {}

    def note(self, job: Job, now_ns: int) -> None:
        """It came, a process of it did, or it is to have another one."""
        if job.spec.memory_min_bytes:
            self._jobs[job.job_id] = job
            self._noted_ns[job.job_id] = now_ns
        else:
            self.forget(job)

    def forget(self, job: Job) -> None:
        """It has ended."""
        self._jobs.pop(job.job_id, None)
        self._noted_ns.pop(job.job_id, None)

    def lapse(self, now_ns: int) -> list[Job]:
        """Forget those that have been without a process for too long."""
        empty = [job for job in self._jobs.values() if not job.processes]
        since_ns = [max(job.left_ns, self._noted_ns[job.job_id]) for job in empty]
        gone = [job for job, at in zip(empty, since_ns, strict=True) if now_ns - at >= LAPSE_NS]
        for job in gone:
            job.is_minimum_kept = False
            self.forget(job)
        return gone

    def left(
        self,
        capacity_bytes: Mapping[int, int],
        but: Job | None,
        *,
        uid: int | None = None,
        key: str = "",
        kept_free: Mapping[int, int] = MappingProxyType({}),
    ) -> Room:
        """By the promises to all of them but one, or to those of a user; the rest as in Room."""
        jobs = (
            job
            for job in self._jobs.values()
            if job is not but and job.is_minimum_kept and uid in (None, job.uid)
        )
        return Room(capacity_bytes, jobs, key=key, kept_free=kept_free)

    def keep(
        self,
        capacity_bytes: Mapping[int, int],
        ceilings: Ceilings,
        name: Callable[[int], str],
        *,
        kept_free: Mapping[int, int] = MappingProxyType({}),
    ) -> Iterator[tuple[Job, str]]:
        """First come, first promised; yields whose promise was broken, and why."""
        room, own = Room(capacity_bytes, kept_free=kept_free), dict[int, Room]()
        for job in self._jobs.values():
            uid, rooms = job.uid, [room]
            if ceilings.binds(uid):
                if uid not in own:
                    own[uid] = Room(ceilings.on(uid), key=ceilings.of(uid).key)
                rooms.append(own[uid])
            told = (objection(job.spec, one, gpus_of(job), name=name) for one in rooms)
            why_not = next(filter(None, told), None)
            was_kept, job.is_minimum_kept = job.is_minimum_kept, why_not is None
            if why_not is None:
                for one in rooms:
                    one.take(job)
            elif was_kept:
                yield job, why_not
