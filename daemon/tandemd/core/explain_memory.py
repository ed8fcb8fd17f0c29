"""What a job may hold of device memory, what it waits for, and behind whom, in words."""

from __future__ import annotations

from tandemd.core.memory_line import Waiter
from tandemd.core.model import NO_LIMIT, Group, Job, Options
from tandemd.core.quantum import STALLS
from tandemd.core.scheduler import Scheduler
from tandemd.core.words import size_of


def first_in_line(scheduler: Scheduler, job: Job) -> Waiter | None:
    """The first of the job's requests in the line for memory."""
    waiters = (scheduler.memory.line.waiters.get(process_id) for process_id in job.processes)
    standing = [waiter for waiter in waiters if waiter is not None and not waiter.is_refused]
    return min(standing, key=lambda waiter: waiter.order, default=None)


def explain_wait(waiter: Waiter, scheduler: Scheduler) -> str:
    """What is waited for and where in line; one sentence."""
    size = size_of(waiter.wait.size_bytes)
    if waiter.is_leased and waiter.wait.is_quota:
        what = f"waits for {size} beyond the {size_of(waiter.process.lease_bytes)} lent to it"
    elif waiter.wait.is_quota:
        what = f"waits for {size} of its own limit of {size_of(waiter.job.spec.memory_bytes)}"
    else:
        what = f"waits for {size} of device memory"
    group = scheduler.group_of(waiter.job)
    if scheduler.memory.line.is_asleep(waiter) and group is not None and group.needs_memory:
        return f"{what}, which it gets with its turn"
    if not waiter.ahead:
        others = (
            "" if waiter.wait.is_quota else _holders(waiter.process.gpus, waiter.job, scheduler)
        )
        return f"{what}, 1st in line{others}"
    behind = waiter.ahead[-1].job.display_name
    return f"{what}, {ordinal(len(waiter.ahead) + 1)} in line behind {behind}"


def memory_facts(job: Job) -> list[str]:
    """The limit and what is used of it, and what happens where it is in the way."""
    spec, used_bytes = job.spec, sum(p.usage.device_bytes for p in job.processes.values())
    lines = []
    if job.paused and used_bytes and not (spec.swappable or spec.checkpoint):
        lines.append("its memory stays on the gpu: it was not started with --swappable")
    if spec.memory_bytes < NO_LIMIT:
        over = ": it is over it, keeps what it has and gets no more" * (
            used_bytes > spec.memory_bytes
        )
        limit = f"holds {size_of(used_bytes)} of its limit of {size_of(spec.memory_bytes)}{over}"
        lines.append(limit)
    if spec.memory_min_bytes:
        kept = "is promised" if job.is_minimum_kept else "is not promised: others came first"
        lines.append(f"its minimum of {size_of(spec.memory_min_bytes)} of device memory {kept}")
    if spec.wait_memory_ns:
        lines.append(f"an allocation waits up to {spec.wait_memory_ns / 1e9:g} s for memory")
    if filed_bytes := sum(p.usage.filed_bytes for p in job.processes.values()):
        lines.append(f"{size_of(filed_bytes)} of its memory on the host are in files of swap_dir")
    fixed_bytes = used_bytes - sum(p.usage.swappable_bytes for p in job.processes.values())
    if spec.swappable and fixed_bytes > 0:
        what = "pools, arrays, or shared with other processes"
        lines.append(f"{size_of(fixed_bytes)} of its memory cannot be moved: {what}")
    if spec.swappable and spec.idle_release_ns:
        idle = f"{spec.idle_release_ns / 1e9:g} s"
        lines.append(f"gives its memory up when idle for {idle}, until its next call")
    return lines


def turn_lines(group: Group, options: Options) -> list[str]:
    """What memory means for the group's turns; nothing where all fits."""
    lines = []
    if group.misfit_bytes:
        lines.append(
            "its memory does not fit beside what cannot be moved: "
            f"{size_of(group.misfit_bytes)} too much; it gets no turn until others give up as much"
        )
    if group.stall_ns:
        what = f"passing its turn on takes {_ms(group.stall_ns)}: memory has to be exchanged"
        if group.turn_ns >= STALLS * group.stall_ns:
            lines.append(f"{what}; it lasts at least {STALLS} times that, {_ms(group.turn_ns)}")
        else:
            lost = group.stall_ns / (group.stall_ns + group.turn_ns)
            wanted, limit = _ms(STALLS * group.stall_ns), _ms(options.max_hold_ns)
            lines.append(
                f"{what}; {STALLS} times that would be {wanted}, but max_hold of {limit} allows "
                f"{_ms(group.turn_ns)}: {lost:.0%} are lost"
            )
    return lines


def explain_return(job: Job, scheduler: Scheduler) -> str | None:
    """That a job which goes on waits for its memory; None if all of it is there."""
    swapped_bytes = sum(process.usage.swapped_bytes for process in job.processes.values())
    if not swapped_bytes:
        return None
    gpus = frozenset(gpu for process in job.processes.values() for gpu in process.gpus)
    others = _holders(gpus, job, scheduler)
    return f"waits for {size_of(swapped_bytes)} of its memory to come back to the gpu{others}"


def _holders(gpus: frozenset[int], job: Job, scheduler: Scheduler) -> str:
    """The others who hold memory there, most first."""
    held: dict[int, int] = {}
    for process in scheduler.processes.values():
        if process.gpus & gpus and process.job_id != job.job_id:
            held[process.job_id] = held.get(process.job_id, 0) + process.usage.resident_bytes
    most = sorted((job_id for job_id in held if held[job_id]), key=lambda job_id: -held[job_id])[:3]
    if not most:
        return ""
    told = (f"{scheduler.jobs[job_id].display_name} {size_of(held[job_id])}" for job_id in most)
    return f"; others hold {', '.join(told)}"


def ordinal(number: int) -> str:
    """`2nd`."""
    tens = number % 100 // 10
    return f"{number}{'th' if tens == 1 else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.{0 if duration_ns >= 10_000_000 else 1}f} ms"
