"""Settings of a job that have no effect as things are, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tandemd.core.explain.sets import why_no_set
from tandemd.core.memory.minima import gpus_of, most_held_bytes, no_limit
from tandemd.core.model import Job, JobClass, JobSpec, Options
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.asked import said, why_no_share
from tandemd.core.substrate import divides_space
from tandemd.core.turns.companions import Pace
from tandemd.core.words import size_of

PROMISES = {"persistent_bytes": "persistent", "ephemeral_bytes": "ephemeral"}


def without_effect(scheduler: Scheduler, job: Job, fields: Iterable[str]) -> Iterator[str]:
    """Yield a line for each of these JobSpec fields, just set, that changes nothing."""
    changed = set(fields)
    whys = _whys(scheduler, job.spec, gpus_of(job))
    yield from (why for field, why in whys.items() if field in changed and why)
    if "memory_bytes" in changed and (what := _over(job)):
        yield what
    if "job_class" in changed and (what := _comes_behind(scheduler, job)):
        yield what
    group = scheduler.group_of(job)
    if _asks_for_sms(job, changed) and group:
        # Where `--sm` means a set, it takes effect whether or not jobs also take turns.
        why_not = (
            why_no_set(job, scheduler.options)
            if divides_space(group.gpus, scheduler.options)
            else why_no_share(group, scheduler.policy, scheduler.options)
        )
        if why_not:
            yield f"sm has no effect: {why_not}"
    if promised := [word for field, word in PROMISES.items() if field in changed]:
        why = _no_promise(scheduler, job)
        if why:
            yield f"{' and '.join(promised)} {'has' if len(promised) == 1 else 'have'} {why}"


def without_effect_from_the_start(
    scheduler: Scheduler, spec: JobSpec, gpus: frozenset[int]
) -> Iterator[str]:
    """Like `without_effect`, for a job about to start on these GPUs, or on any if none is named."""
    yield from filter(None, _whys(scheduler, spec, gpus).values())


def _whys(scheduler: Scheduler, spec: JobSpec, gpus: frozenset[int]) -> dict[str, str]:
    """Map fields to why they have no effect on these GPUs, or on any if none is named; else ""."""
    return {
        "idle_release_ns": no_release(spec),
        "memory_bytes": _no_memory_limit(spec, gpus, scheduler),
        "preemptible": _cut_anyway(spec, scheduler.options),
        "slo_p99_ns": _only_measured(scheduler, spec, gpus),
    }


def _cut_anyway(spec: JobSpec, options: Options) -> str:
    if spec.preemptible is not False or options.nonpreemptible_ns:
        return ""
    return "preemptible=no has no effect: scheduler.nonpreemptible_ms is 0"


def _only_measured(scheduler: Scheduler, spec: JobSpec, gpus: frozenset[int]) -> str:
    # A latency job gets its advantages by class, if nothing else follows objectives.
    if not spec.slo_p99_ns or spec.job_class is JobClass.LATENCY:
        return ""
    options, by_trials = scheduler.options, scheduler.policy.pace is Pace.FREE
    sets = options.splits.keys() | options.may_have_sets  # sets are sized by objectives
    if options.tuner or options.planner or by_trials or sets & (gpus or sets):
        return ""
    return "slo is only measured and reported, because partition.tuner is off"


def _no_memory_limit(spec: JobSpec, gpus: frozenset[int], scheduler: Scheduler) -> str:
    why = no_limit(spec, gpus, scheduler.memory.line.capacity_bytes)
    return f"memory has no effect: {why}" if why else ""


def _over(job: Job) -> str:
    held_bytes = most_held_bytes(job)
    if held_bytes <= job.spec.memory_bytes:
        return ""
    return f"it holds {size_of(held_bytes)}: it keeps that, but gets no more"


def no_release(spec: JobSpec) -> str:
    """Why the job does not give up memory when idle, as asked for; empty: it does."""
    if spec.swappable or not spec.idle_release_ns:
        return ""
    return (
        "idle_release has no effect: only a job that was started with --swappable gives its "
        "memory up when idle"
    )


def _comes_behind(scheduler: Scheduler, job: Job) -> str:
    if job.spec.job_class is not JobClass.LATENCY or not job.processes:
        return ""
    if scheduler.options.mode_of(gpus_of(job)) not in ("mps", "mps+green"):
        return ""
    return (
        "under mps the gpu ranks its work by the class in which the job started: behind that of "
        "jobs that started as latency, unless this one did"
    )


def _asks_for_sms(job: Job, changed: set[str]) -> bool:
    return bool(changed & {"sm_percent", "sm_count"} and said(job.spec) and job.processes)


def _no_promise(scheduler: Scheduler, job: Job) -> str:
    if not scheduler.policy.by_lanes:
        policy = scheduler.options.policy
        return f"no effect under the policy {policy!r}: only 'lanes' uses promises of memory"
    group = scheduler.group_of(job)
    if job.processes and group is not None and scheduler.lanes.of(group) is None:
        return "no effect: lanes are for jobs on one gpu whose memory is known"
    return ""
