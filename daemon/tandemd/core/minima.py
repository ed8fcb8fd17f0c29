"""Promises of memory: the minima of the jobs on a GPU never add up to more than it has.

A job that is registered and on no GPU yet may come to any of them; until then it is counted where
most is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tandemd.core.model import NO_LIMIT, Job, JobSpec


def gpus_of(job: Job) -> frozenset[int]:
    """The GPUs its processes use."""
    return frozenset(gpu for process in job.processes.values() for gpu in process.gpus)


def left_bytes(others: Iterable[Job], capacity_bytes: Mapping[int, int]) -> dict[int, int]:
    """What the promises to `others` leave of each GPU whose size is known."""
    left = dict(capacity_bytes)
    for job in others:
        if not job.is_minimum_kept:
            continue
        if not job.processes and left:
            left[max(left, key=lambda gpu: left[gpu])] -= job.spec.memory_min_bytes
        for gpu in gpus_of(job) & left.keys():
            left[gpu] -= job.spec.memory_min_bytes
    return left


def objection(
    spec: JobSpec,
    others: Iterable[Job],
    capacity_bytes: Mapping[int, int],
    gpus: frozenset[int] = frozenset(),
) -> str | None:
    """Why a minimum cannot be promised on all of `gpus`, or on none there is; None if it can."""
    minimum = spec.memory_min_bytes
    if minimum > spec.memory_bytes:
        return f"its minimum of {_gib(minimum)} is more than its limit, {_gib(spec.memory_bytes)}"
    left = left_bytes(others, capacity_bytes)
    rooms = sorted((left[gpu], gpu) for gpu in (gpus & left.keys() if gpus else left))
    if not minimum or not rooms:
        return None
    room, gpu = rooms[0] if gpus else rooms[-1]
    if minimum <= room:
        return None
    promised = capacity_bytes[gpu] - room
    return (
        f"its minimum of {_gib(minimum)} does not fit: gpu {gpu} has {_gib(capacity_bytes[gpu])}, "
        f"of which {_gib(promised)} are promised to others; lower --memory-min, or try again later"
    )


def _gib(size_bytes: int) -> str:
    return "none" if size_bytes >= NO_LIMIT else f"{size_bytes / (1 << 30):.4g} GiB"
