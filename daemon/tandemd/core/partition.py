"""How a GPU is divided among its jobs, and how it would be by how they scale."""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.claims import claim_of, jobs_on, part_sms_of
from tandemd.core.model import Job
from tandemd.core.scaling import Curve
from tandemd.core.scheduler import Scheduler
from tandemd.core.sizing import sizes
from tandemd.core.sm_counts import given_sms, why_no_curve
from tandemd.core.space import owed_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A job's part of one GPU."""

    job: Job
    asked: str  # `30%`, `40 SMs`; empty: it says nothing
    asked_sms: int  # what that comes to; 0 = it says nothing
    given_sms: int  # 0 = not known
    owed_share: float  # of the time of those it takes turns with; 0 = nothing
    required_sms: int  # keep its limit; 0 = it has none, or no number does
    proposed_sms: int  # 0 = what others leave
    why: str
    scaling: Curve | None
    doubt: str  # why there is no curve
    predicted_ns: int  # was said of an iteration there before it ran on as many; 0 = nothing
    measured_ns: int  # an iteration of its slowest process on that GPU takes; 0 = not known


def parts_of(scheduler: Scheduler, gpu: int) -> list[Part]:
    """Of every job that has a process there, in order of arrival."""
    options = scheduler.options
    jobs = jobs_on(gpu, scheduler.jobs.values())
    part_sms = part_sms_of(gpu, options)
    if not part_sms:
        return []
    claims = [claim_of(job, gpu, options) for job in jobs]
    split = options.splits.get(gpu)
    parts = split.groups if split else options.sm_counts[gpu] // part_sms
    found = sizes(claims, parts, part_sms)
    return [
        Part(
            job=job,
            asked=claim.asked,
            asked_sms=claim.asked_sms,
            given_sms=given_sms(job, gpu, options),
            owed_share=_owed(scheduler, job),
            required_sms=size.required_sms,
            proposed_sms=size.parts * part_sms,
            why=size.why,
            scaling=job.scaling,
            doubt=why_no_curve(job),
            predicted_ns=max(p.foretold_ns for p in job.processes.values()),
            measured_ns=max(p.usage.iteration_ns for p in job.processes.values() if gpu in p.gpus),
        )
        for job, claim, size in zip(jobs, claims, found, strict=True)
    ]


def _owed(scheduler: Scheduler, job: Job) -> float:
    group = scheduler.group_of(job)
    return owed_share(job, group, scheduler.options) if group else 0.0
