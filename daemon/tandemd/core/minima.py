"""Limits and promises of memory in bytes: shares of a GPU, and minima.

The minima of the jobs on a GPU never add up to more than it has. A job that is registered and on no
GPU yet may come to any of them; until then it is counted where most is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tandemd.core.memories import memory_of
from tandemd.core.model import NO_LIMIT, Job, JobSpec
from tandemd.core.words import size_of


def gpus_of(job: Job) -> frozenset[int]:
    """The GPUs its processes use."""
    return frozenset(gpu for process in job.processes.values() for gpu in process.gpus)


def share_bytes(percent: int, job: Job, capacity_bytes: Mapping[int, int]) -> int | None:
    """A share of the GPU that the job's first process is on, counted as the shim does.

    Of a job without processes it is one of any GPU, if they are all alike. None: not known.
    """
    first = next(iter(job.processes.values()), None)
    gpus = list(capacity_bytes) if first is None else [first.gpu]
    sizes = {capacity_bytes.get(gpu) for gpu in gpus}
    size_bytes = sizes.pop() if len(sizes) == 1 else None
    return None if size_bytes is None else size_bytes // 100 * percent


def no_limit(job: Job, capacity_bytes: Mapping[int, int]) -> str:
    """Why its limit limits nothing on any GPU it uses, or there is; empty: it does, or has none."""
    sizes = [capacity_bytes.get(gpu, 0) for gpu in gpus_of(job) or capacity_bytes]
    limit_bytes, most_bytes = job.spec.memory_bytes, max(sizes, default=0)
    if limit_bytes == NO_LIMIT or not all(sizes) or limit_bytes <= most_bytes:
        return ""
    return f"{size_of(limit_bytes)} is more than the {size_of(most_bytes)} that the gpu has"


def left_bytes(others: Iterable[Job], capacity_bytes: Mapping[int, int]) -> dict[int, int]:
    """What the promises to `others` leave of each GPU whose size is known."""
    left = {memory_of(gpu): size_bytes for gpu, size_bytes in capacity_bytes.items()}
    for job in others:
        if not job.is_minimum_kept:
            continue
        memories = set(map(memory_of, gpus_of(job)))
        if not job.processes and left:
            memories = {max(left, key=lambda memory: left[memory])}
        for memory in memories & left.keys():
            left[memory] -= job.spec.memory_min_bytes
    return {gpu: left[memory_of(gpu)] for gpu in capacity_bytes}


def objection(
    spec: JobSpec,
    others: Iterable[Job],
    capacity_bytes: Mapping[int, int],
    gpus: frozenset[int] = frozenset(),
    *,
    name: Callable[[int], str] = str,
) -> str | None:
    """Why a minimum cannot be promised on all of `gpus`, or on none there is; None if it can.

    `name`: what people call a GPU.
    """
    minimum = spec.memory_min_bytes
    if minimum > spec.memory_bytes:
        return (
            f"its minimum of {size_of(minimum)} is more than its limit of "
            f"{size_of(spec.memory_bytes)}; lower --memory-min, or raise --memory"
        )
    left = left_bytes(others, capacity_bytes)
    rooms = sorted((left[gpu], gpu) for gpu in (gpus & left.keys() if gpus else left))
    if not minimum or not rooms:
        return None
    room, gpu = rooms[0] if gpus else rooms[-1]
    if minimum <= room:
        return None
    promised = capacity_bytes[gpu] - room
    later = ", or try again later" if minimum <= capacity_bytes[gpu] else ""
    return (
        f"its minimum of {size_of(minimum)} does not fit: gpu {name(gpu)} has "
        f"{size_of(capacity_bytes[gpu])}, {size_of(promised)} of it promised to others; "
        f"lower --memory-min{later}"
    )
