"""Requests for device memory that were told out of memory, and by whom, for a job's story."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.memory.line import MemoryLine
from tandemd.core.model import NO_LIMIT, Group, Job, Process, Refusal, Usage
from tandemd.core.words import size_of

BY = {
    Refusal.QUOTA: "by its limit",
    Refusal.DEVICE: "by the driver",
    Refusal.LINE: "in line for memory",
}


def refusals_since(
    before: Usage, process: Process, job: Job, group: Group, line: MemoryLine
) -> Iterator[str]:
    """Yield what is new of a process's refusals, for the story: same cause, same words."""
    counts = zip(Refusal, before.refused_by, process.usage.refused_by, strict=True)
    for by, count_before, count in counts:
        if count > count_before:
            if by is Refusal.QUOTA:
                yield f"told out of memory by {_limit(process, job, group, line)}"
            else:
                yield f"told out of memory {BY[by]}"


def refusals(job: Job) -> list[str]:
    """Say how often the job was told out of memory, and by whom; empty if it never was."""
    by = [f"{job.refused_by[who]} {BY[who]}" for who in Refusal if job.refused_by[who]]
    total = sum(job.refused_by)
    times = "once" if total == 1 else f"{total} times"
    return [f"was told out of memory {times}: {', '.join(by)}"] if total else []


def _limit(process: Process, job: Job, group: Group, line: MemoryLine) -> str:
    least = min(job.spec.memory_bytes, group.memory_limit_bytes, process.lease_bytes)
    line.ceilings.look()
    if line.reserves.is_in_the_way(process, line.ceilings.left(process, job, group)):
        return "what is kept free of all jobs on its gpu"
    if (of_user := line.ceilings.in_the_way(process, job, group)) is not None:
        return f"the limit of {size_of(of_user[1])} of all jobs of its user"
    return f"its limit of {size_of(least)}" if least < NO_LIMIT else "its limit"
