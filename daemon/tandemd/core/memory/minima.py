"""Limits and promises of memory in bytes: shares of a GPU, and minima.

The minima of the jobs on a GPU never add up to more than it has. A job that is registered but on no
GPU yet may come to any of them; until it does it counts on the GPU with most room left, but not for
ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from tandemd.core.memory.ceilings import Ceilings
from tandemd.core.memory.memories import memory_of
from tandemd.core.model import NO_LIMIT, Job, JobSpec
from tandemd.core.words import size_of, sizes_apart

LAPSE_NS = 300_000_000_000  # from `tandem run` to the first use of the GPU may take a while


def gpus_of(job: Job) -> frozenset[int]:
    """The GPUs its processes use."""
    return frozenset(gpu for process in job.processes.values() for gpu in process.gpus)


def most_held_bytes(job: Job) -> int:
    """Return the most its processes hold on any one GPU: its limit is for each GPU by itself."""
    held: dict[int, int] = defaultdict(int)
    for process in job.processes.values():
        for gpu in process.gpus:  # where on its GPUs a process has its memory is not known
            held[gpu] += process.usage.device_bytes
    return max(held.values(), default=0)


def share_bytes(percent: int, job: Job, capacity_bytes: Mapping[int, int]) -> int | None:
    """Return a share of the GPU that the job's first process is on, computed as the shim does.

    For a job without processes it is a share of any GPU, if all are alike. None: not known.
    """
    first = next(iter(job.processes.values()), None)
    gpus = list(capacity_bytes) if first is None else [first.gpu]
    sizes = {capacity_bytes.get(gpu) for gpu in gpus}
    size_bytes = sizes.pop() if len(sizes) == 1 else None
    return None if size_bytes is None else size_bytes // 100 * percent


def no_limit(spec: JobSpec, gpus: frozenset[int], capacity_bytes: Mapping[int, int]) -> str:
    """Return why its limit has no effect on `gpus` (all, if empty); empty: it has, or is unset."""
    sizes = _sizes(gpus, capacity_bytes)
    limit_bytes, most_bytes = spec.memory_bytes, max(sizes, default=0)
    if limit_bytes == NO_LIMIT or not sizes or not all(sizes) or limit_bytes <= most_bytes:
        return ""
    limit, most = sizes_apart(limit_bytes, most_bytes)
    return f"{limit} is more than the {most} that the gpu has"


def _sizes(gpus: frozenset[int], capacity_bytes: Mapping[int, int]) -> list[int]:
    """Return the sizes of these GPUs, or of all if none is named; 0 = not known."""
    return [capacity_bytes.get(gpu, 0) for gpu in gpus or capacity_bytes]


class Room:
    """What promises leave of each GPU of known size, or of what a user may have there."""

    def __init__(
        self,
        capacity_bytes: Mapping[int, int],
        promised: Iterable[Job] = (),
        *,
        key: str = "",
        kept_free: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Take the promises into account.

        `key`: the configuration key that says what the user may have. `kept_free`: bytes that a GPU
        has in addition, for no job.
        """
        self.capacity_bytes, self.key, self.kept_free = capacity_bytes, key, kept_free
        self._left = {memory_of(gpu): size_bytes for gpu, size_bytes in capacity_bytes.items()}
        for job in promised:
            self.take(job)

    def take(self, job: Job) -> None:
        """Subtract the minimum of one more job."""
        memories = set(map(memory_of, gpus_of(job)))
        if not job.processes and self._left:
            memories = {max(self._left, key=self._left.__getitem__)}
        for memory in memories & self._left.keys():
            self._left[memory] -= job.spec.memory_min_bytes

    def left_bytes(self, gpu: int) -> int:
        """Return what is left of a GPU whose size is known."""
        return self._left[memory_of(gpu)]


def never_fits(spec: JobSpec, gpus: frozenset[int], capacity_bytes: Mapping[int, int]) -> bool:
    """Tell whether no GPU of `gpus` (of all, if empty) could hold its minimum, even alone."""
    sizes = _sizes(gpus, capacity_bytes)
    return bool(sizes) and all(0 < size < spec.memory_min_bytes for size in sizes)


def objection(
    spec: JobSpec,
    room: Room,
    gpus: frozenset[int] = frozenset(),
    *,
    name: Callable[[int], str] = str,
) -> str | None:
    """Return why a minimum cannot be promised on all of `gpus`, or anywhere; None if it can.

    `name` maps a GPU to what people call it.
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
        whom = "other jobs of that user"
    if promised or not room.key:
        whole += f", {size_of(promised)} of it promised to {whom}"
    return f"its minimum of {size_of(minimum)} does not fit: {whole}; lower the minimum{later}"


class Minima:
    """The living jobs with a minimum. Most jobs have none, and cost nothing as they come and go.

    A job without a process is not promised memory for ever: after `LAPSE_NS` the memory may be
    promised to others, and the job queues behind them when a process of it comes.
    """

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}  # in order of arrival
        self._noted_ns: dict[int, int] = {}

    def note(self, job: Job, now_ns: int) -> None:
        """Note that the job or a process of it came, or that its minimum changes."""
        if job.spec.memory_min_bytes:
            self._jobs[job.job_id] = job
            self._noted_ns[job.job_id] = now_ns
        else:
            self.forget(job)

    def forget(self, job: Job) -> None:
        """Drop a job that has ended."""
        self._jobs.pop(job.job_id, None)
        self._noted_ns.pop(job.job_id, None)

    def lapse(self, now_ns: int) -> list[Job]:
        """Drop, and return, the jobs that have been without a process for too long."""
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
        """Return the room that promises leave: to all jobs except `but`, or to one user's only.

        The other arguments are as in `Room`.
        """
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
        """Keep promises in order of arrival; yield each job whose promise was broken, and why."""
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
