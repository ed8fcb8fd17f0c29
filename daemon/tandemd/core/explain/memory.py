"""Explains a job's device memory: what it may hold, what it waits for, and behind whom."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.memory.checkpoints import RETRY_NS, Move
from tandemd.core.memory.line import Waiter
from tandemd.core.memory.memories import memory_of
from tandemd.core.memory.minima import gpus_of, most_held_bytes, no_limit
from tandemd.core.memory.refusals import refusals
from tandemd.core.memory.releases import is_released
from tandemd.core.model import NO_LIMIT, Group, Job, Options
from tandemd.core.scheduler import Scheduler
from tandemd.core.words import size_of, span_of


def first_in_line(scheduler: Scheduler, job: Job) -> Waiter | None:
    """The first of the job's requests in the line for memory."""
    waiters = (scheduler.memory.line.waiters.get(process_id) for process_id in job.processes)
    standing = [waiter for waiter in waiters if waiter is not None and not waiter.is_refused]
    return min(standing, key=lambda waiter: waiter.order, default=None)


def explain_wait(waiter: Waiter, scheduler: Scheduler, now_ns: int) -> str:
    """What the request waits for, its place in line, and how long; one sentence."""
    waited_ns, most_ns = now_ns - waiter.since_ns, waiter.job.spec.wait_memory_ns
    most = f", at most {span_of(max(0, most_ns - waited_ns))} more" if most_ns else ""
    return f"{_place_in_line(waiter, scheduler)}; waits {span_of(waited_ns)} so far{most}"


def _place_in_line(waiter: Waiter, scheduler: Scheduler) -> str:
    size = size_of(waiter.wait.size_bytes)
    if waiter.is_leased and waiter.is_quota:
        what = f"waits for {size} beyond the {size_of(waiter.process.lease_bytes)} lent to it"
    elif waiter.is_quota:
        limit = size_of(waiter.limit_bytes)
        whose = f"the {limit} that all jobs of its user may have"
        what = f"waits for {size} of {whose if waiter.is_of_user else f'its own limit of {limit}'}"
    else:
        what = f"waits for {size} of device memory"
    group = scheduler.group_of(waiter.job)
    if scheduler.memory.line.is_asleep(waiter) and group is not None and group.needs_memory:
        return f"{what}, which it gets with its turn"
    if not waiter.ahead:
        others = "" if waiter.is_quota else _holders(waiter.process.memories, waiter.job, scheduler)
        return f"{what}, 1st in line{others}"
    behind = waiter.ahead[-1].job.display_name
    return f"{what}, {ordinal(len(waiter.ahead) + 1)} in line behind {behind}"


def memory_facts(scheduler: Scheduler, job: Job) -> list[str]:
    """Its memory limits and their use, what may be moved, and what happens in a shortage."""
    options, capacity_bytes = scheduler.options, scheduler.memory.line.capacity_bytes
    spec, used_bytes = job.spec, sum(p.usage.device_bytes for p in job.processes.values())
    lines = []
    if job.paused and used_bytes and not (spec.swappable or spec.checkpoint):
        lines.append("its memory stays on the gpu: it was not started with --swappable")
    if spec.memory_bytes < NO_LIMIT:
        most_bytes = most_held_bytes(job)
        over = ": it is over the limit, so it keeps what it has and gets no more" * (
            most_bytes > spec.memory_bytes
        )
        limit = f"holds {size_of(most_bytes)} of its limit of {size_of(spec.memory_bytes)}{over}"
        lines.append(limit)
    lines += _of_user(scheduler, job)
    lines += _kept_free(scheduler, job)
    if why := no_limit(spec, gpus_of(job), capacity_bytes):
        lines.append(f"its memory limit has no effect: {why}")
    if spec.memory_min_bytes:
        why_not = "others came first" if job.processes else "it has no process"
        if job.processes and (key := scheduler.memory.line.ceilings.of(job.uid).key):
            why_not += f", or its user may not have that much ({key})"
        kept = "is promised" if job.is_minimum_kept else f"is not promised: {why_not}"
        lines.append(f"its minimum of {size_of(spec.memory_min_bytes)} of device memory {kept}")
    if spec.wait_memory_ns:
        lines.append(f"an allocation waits up to {spec.wait_memory_ns / 1e9:g} s for memory")
    if spec.checkpoint:
        lines.append(
            "while it is paused, the driver saves it to the host as a whole (--checkpoint)"
        )
    return [*lines, *_swap_facts(job, options), *refusals(job)]


def _of_user(scheduler: Scheduler, job: Job) -> Iterator[str]:
    """What all jobs of its user hold, and may hold, on the job's GPUs."""
    ceilings = scheduler.memory.line.ceilings
    ceilings.look()
    for gpu, most_bytes in sorted(ceilings.on(job.uid, gpus_of(job)).items()):
        held_bytes = ceilings.held_bytes(job.uid, gpu)
        over = ": they keep what they have and get no more" if held_bytes > most_bytes else ""
        yield (
            f"all jobs of its user hold {size_of(held_bytes)} of the {size_of(most_bytes)} that "
            f"they may hold on gpu {scheduler.options.name_of(gpu)} "
            f"({ceilings.of(job.uid).key}){over}"
        )


def _kept_free(scheduler: Scheduler, job: Job) -> Iterator[str]:
    """What all jobs hold, and may hold, on the job's GPUs where some memory is kept free."""
    line, name_of = scheduler.memory.line, scheduler.options.name_of
    for gpu in sorted(gpus_of(job) & line.capacity_bytes.keys()):
        if (reserve := line.reserves.of(gpu)) is None:
            continue
        held_bytes, most_bytes = line.reserves.held_bytes(gpu), line.capacity_bytes[gpu]
        over = ": they keep what they have and get no more" if held_bytes > most_bytes else ""
        yield (
            f"all jobs hold {size_of(held_bytes)} of the {size_of(most_bytes)} that they may hold "
            f"on gpu {name_of(gpu)}, where {size_of(reserve.size_bytes)} is kept free "
            f"({reserve.key}){over}"
        )


def _swap_facts(job: Job, options: Options) -> list[str]:
    """What part of its memory may be moved to the host, and when."""
    usages = [process.usage for process in job.processes.values()]
    lines = []
    if job.spec.swappable:
        lines.append("swappable: its memory may be moved to the host while others need the room")
    if filed_bytes := sum(usage.filed_bytes for usage in usages):
        lines.append(f"{size_of(filed_bytes)} of its memory on the host is in files in swap_dir")
    fixed_bytes = sum(usage.device_bytes - usage.swappable_bytes for usage in usages)
    if job.spec.swappable and fixed_bytes > 0:
        what = "it is in pools or arrays, or shared with other processes"
        lines.append(f"{size_of(fixed_bytes)} of its memory cannot be moved: {what}")
    if job.spec.swappable and (idle_ns := options.idle_release_of(job.spec)):
        idle = f"{idle_ns / 1e9:g} s"
        lines.append(f"gives its memory up when idle for {idle}, until its next call")
    return lines


def swapped_bytes(job: Job) -> int:
    """Bytes of its memory on the host, files included."""
    return sum(process.usage.swapped_bytes for process in job.processes.values())


def paused_memory(scheduler: Scheduler, job: Job) -> str:
    """Where a paused job's memory is, as part of a sentence; "" if all of it is on the GPU."""
    away_bytes = swapped_bytes(job)
    here_bytes = sum(process.usage.resident_bytes for process in job.processes.values())
    if (move := scheduler.checkpoints.move_of(job)) and move.away:
        return f", {_saving(move)}"
    problem = (
        scheduler.checkpoints.problem_of(job)
        or scheduler.residency.why_it_stays(job)
        or _capture_of(job)
    )
    if not away_bytes:
        return f", its memory stays on the gpu: {problem}" if problem else ""
    if not here_bytes:
        return f", its memory is on the host: {size_of(away_bytes)}"
    told = f", {size_of(away_bytes)} of its memory on the host and {size_of(here_bytes)} on the gpu"
    return f"{told}: {problem}" if problem else told


def _capture_of(job: Job) -> str:
    if job.spec.swappable and any(process.usage.capturing for process in job.processes.values()):
        return "it is capturing a graph, and the capture has to end first"
    return ""


def _saving(move: Move) -> str:
    if move.ahead:
        return f"the driver will save it to the host, after {_others(move.ahead)}"
    return "the driver is saving it to the host"


def _returning(move: Move) -> str:
    if move.ahead:
        return f"the driver will bring it back to the gpu, after {_others(move.ahead)},"
    return "the driver is bringing it back to the gpu"


def _others(count: int) -> str:
    return f"{count} other{'s' * (count > 1)}"


def explain_away(scheduler: Scheduler, job: Job, group: Group, now_ns: int) -> str | None:
    """Why memory of a job that is not paused is on the host; None if none is."""
    move = scheduler.checkpoints.move_of(job)
    if move and move.away:
        return f"{_saving(move)}, and will then bring it back"
    away_bytes = swapped_bytes(job)
    if not away_bytes:
        return None
    others = _holders(frozenset(map(memory_of, group.gpus)), job, scheduler)
    if problem := scheduler.checkpoints.problem_of(job):
        again = span_of(RETRY_NS)
        return (
            f"waits to come back to the gpu with {size_of(away_bytes)} of memory: {problem}; "
            f"retried every {again}{others}"
        )
    if move:
        return f"{_returning(move)} with {size_of(away_bytes)} of memory"
    if group.calls or not _stays_away(scheduler, job, group, now_ns):
        return f"waits for {size_of(away_bytes)} of its memory to come back to the gpu{others}"
    since_ns = min(p.away_since_ns for p in job.processes.values() if p.usage.swapped_bytes)
    return (
        f"idle for {span_of(now_ns - group.last_wanted_ns)}: {size_of(away_bytes)} of its memory "
        f"is on the host, the first of it for {span_of(now_ns - since_ns)}; it comes back at the "
        "job's next call"
    )


def _stays_away(scheduler: Scheduler, job: Job, group: Group, now_ns: int) -> bool:
    """Tell whether it gave up memory, because it was idle or because others need the room."""
    if job.spec.checkpoint:
        return False  # the driver brings it back as soon as nobody pauses it
    if any(group.gpus <= gpus for gpus in scheduler.residency.crowds):
        return True
    return is_released(group, scheduler.options, now_ns)


def _holders(memories: frozenset[int], job: Job, scheduler: Scheduler) -> str:
    """The other jobs that hold most memory there, largest first."""
    held: dict[int, int] = {}
    for process in scheduler.processes.values():
        if process.memories & memories and process.job_id != job.job_id:
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
