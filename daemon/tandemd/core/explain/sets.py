"""Explains which SMs a job is on, and which of its work is not on them."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.model import Group, Job, Options, SmSet, StayReason
from tandemd.core.space.asked import said
from tandemd.core.space.sets import Span

_WHY = {
    StayReason.LEGACY: "the legacy default stream",
    StayReason.PER_THREAD: "per-thread default streams",
    StayReason.BLOCKING: "created without CU_STREAM_NON_BLOCKING: {}",
    StayReason.ELSEWHERE: "in contexts that the job created, or with grids for the whole gpu: {}",
    StayReason.CAPTURING: "that capture graphs, or may: {}",
    StayReason.REFUSED: "refused by the driver: {}",
}


def set_lines(job: Job, group: Group, options: Options) -> Iterator[str]:
    """Describe the job's set, or why there is none; nothing where sets mean nothing."""
    for gpu in sorted(group.gpus & options.proving):
        name = options.name_of(gpu)
        yield f"mode mps+green is being proved on gpu {name}, which is in mode mps until then"
    for gpu in sorted(group.gpus & options.unproved.keys()):
        is_open = gpu in options.retried
        yield (
            f"mode mps+green is {'not proved yet' if is_open else 'not available'} on gpu "
            f"{options.name_of(gpu)}, which is in mode mps: {options.unproved[gpu]}"
            f"{'; this is retried' if is_open else ''}"
        )
    if why_not := why_no_set(job, options):
        yield f"it has no set of SMs: {why_not}"
    if job.set is None:
        return
    split = next(options.splits[gpu] for gpu in sorted(group.gpus & options.splits.keys()))
    asked = said(job.spec)
    yield f"{_is_on(job.set, split.group_sms)}, {_for(job, asked)}"
    if 0 < job.set.count < job.groups_wanted:
        why = (
            "no plan has been made with these yet"
            if job.part
            else f"together the jobs ask for more than the {split.groups} groups that there are"
        )
        yield f"that is less than the {job.groups_wanted} groups it asks for: {why}"
    yield from _on_its_way(job, split.group_sms)
    yield from _staying(job)


def why_no_set(job: Job, options: Options) -> str:
    """Why the job has no set although its GPU has sets; empty: it has one."""
    outside = [p for p in job.processes.values() if p.gpu in options.splits and p.has_no_set]
    if not outside:
        return ""
    percent = max((p.mps_percent for p in outside if p.has_percentage), default=0)
    if not percent:
        return (
            "it was running before its gpu was in mode mps+green, and keeps the whole gpu as long "
            "as it runs; restart it to give it one"
        )
    return (
        f"an MPS percentage, {percent:.4g}%, limits it for as long as it runs, with which it would "
        "split the SMs differently from the others; restart it without a percentage of its own"
    )


def _is_on(span: Span, group_sms: int) -> str:
    last = span.end - 1
    which = f"group {span.first}" if span.count == 1 else f"groups {span.first} to {last}"
    return f"its set is {span.count * group_sms} SMs: {which} of {group_sms} SMs each"


def _for(job: Job, asked: str) -> str:
    if job.part:
        return f"by plan, and for sm {asked}" if asked else "by plan"
    if not job.groups_wanted:
        return "which the other sets leave free, and may be shared"
    return f"for sm {asked}" if asked else "by how it scales and what its requests take"


def _on_its_way(job: Job, group_sms: int) -> Iterator[str]:
    assert job.set is not None
    told = SmSet(job.set.first, job.set.count, group_sms)
    behind = [p for p in job.processes.values() if p.usage.in_set != told]
    if any(process.usage.in_set is None for process in behind):
        yield (
            "it is not in its set yet, but on the whole gpu: a process that was running before "
            "mode mps+green was on, or whose shim does not support sets, stays there until it is "
            "restarted"
        )
    elif any(process.usage.following_streams for process in behind):
        yield "its work may still run on the previous SMs, or that of others on the new ones"


def _staying(job: Job) -> Iterator[str]:
    """Yield which streams are in the set and which work is not."""
    rows = [process.usage.staying_streams for process in job.processes.values()]
    counts = [sum(column) for column in zip(*rows, strict=True)]
    parts = [_WHY[reason].format(counts[reason]) for reason in StayReason if counts[reason]]
    following = sum(process.usage.following_streams for process in job.processes.values())
    yield f"streams in it: {following}"
    if parts:
        yield f"streams on the whole gpu: {'; '.join(parts)}"
    if any(process.usage.runs_graphs for process in job.processes.values()):
        yield "graphs on the whole gpu: their kernels stay on the SMs where they were captured"
