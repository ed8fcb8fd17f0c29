"""How a GPU is divided among its jobs, and how it would be divided by how they scale."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tandemd.core.explain.sets import why_no_set
from tandemd.core.model import Job
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.asked import owed_share
from tandemd.core.space.claims import claim_of, jobs_on, part_sms_of
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sizing import Claim, Size, sizes
from tandemd.core.space.sm_counts import given_sms, holds_percentage, why_no_curve
from tandemd.core.tuner.pauses import serves_bursts


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A job's part of one GPU."""

    job: Job
    asked: str  # `30%`, `40 SMs`; empty: no size is asked for
    asked_sms: int  # what that comes to; 0 = no size is asked for
    given_sms: int  # 0 = not known
    owed_share: float  # of the time of those it takes turns with; 0 = none
    required_sms: int  # to keep its limit; 0 = it has no limit, or no number keeps it
    proposed_sms: int  # 0 = what others leave
    why: str
    scaling: Curve | None
    doubt: str  # why there is no curve
    predicted_ns: int  # predicted for an iteration before it ran on this many SMs; 0 = nothing
    why_no_set: str  # empty: it has a set, or its GPU has none; else nothing is proposed
    measured_ns: int  # an iteration of its slowest process on that GPU; 0 = not known


def parts_of(scheduler: Scheduler, gpu: int) -> list[Part]:
    """Return the part of every job that has a process there, in order of arrival.

    A job that can have no set gets no proposal, and nothing is reserved for it, as in
    sized_sets.py.
    """
    options = scheduler.options
    jobs = jobs_on(gpu, scheduler.jobs.values())
    part_sms = part_sms_of(gpu, options)
    if not part_sms:
        return []
    split = options.splits.get(gpu)
    parts = split.groups if split else options.sm_counts[gpu] // part_sms
    why_not = [why_no_set(job, options) for job in jobs]
    claims = [claim_of(job, gpu, options) for job in jobs]
    sized = [claim for claim, why in zip(claims, why_not, strict=True) if not why]
    found = iter(sizes(sized, parts, part_sms))
    return [
        _part(
            scheduler,
            gpu,
            job,
            claim,
            replace(sizes([claim], parts, part_sms)[0], parts=0) if why else next(found),
            why,
        )
        for job, claim, why in zip(jobs, claims, why_not, strict=True)
    ]


def _part(
    scheduler: Scheduler, gpu: int, job: Job, claim: Claim, size: Size, why_no_set: str
) -> Part:
    given = given_sms(job, gpu, scheduler.options)
    proposed = size.parts * part_sms_of(gpu, scheduler.options)
    is_held = gpu not in scheduler.options.splits and holds_percentage(job, gpu)
    held = f"; an MPS percentage limits it to {given} SMs as long as it runs"
    return Part(
        job=job,
        asked=claim.asked,
        asked_sms=claim.asked_sms,
        given_sms=given,
        owed_share=_owed(scheduler, job),
        required_sms=size.required_sms,
        proposed_sms=proposed,
        why=size.why + held if is_held and proposed != given else size.why,
        scaling=job.scaling,
        doubt=why_no_curve(job),
        predicted_ns=max(p.foretold_ns for p in job.processes.values()),
        why_no_set=why_no_set,
        measured_ns=_measured_ns(job, gpu, given),
    )


def _measured_ns(job: Job, gpu: int, given: int) -> int:
    """Return an iteration's time as curves count it: without the pauses between bursts."""
    if serves_bursts(job):
        curve = job.scaling
        return curve.recorded_ns if curve and curve.recorded_sms == given else 0
    return max(p.usage.iteration_ns for p in job.processes.values() if gpu in p.gpus)


def _owed(scheduler: Scheduler, job: Job) -> float:
    group = scheduler.group_of(job)
    return owed_share(job, group, scheduler.options) if group else 0.0
