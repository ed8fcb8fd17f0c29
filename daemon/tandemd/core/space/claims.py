"""What is known of the use that jobs on a GPU have for its SMs, as input for sizing.py."""

from __future__ import annotations

from collections.abc import Iterable

from tandemd.core.model import Job, Options
from tandemd.core.space.asked import said
from tandemd.core.space.sizing import Claim
from tandemd.core.space.sm_counts import asked_sms, has_use_of_set, why_no_curve
from tandemd.core.tuner.pauses import limit_ns

_OUT_OF_SETS = "a set would not hold it: its streams stay on the whole gpu"
_OF_LIMIT = 0.9  # a 99th percentile is longer than the usual iteration
_MOST_PARTS = 128  # that are shared out; on a GPU with more SMs a part has several


def part_sms_of(gpu: int, options: Options) -> int:
    """Return the SMs of the smallest part that a GPU can be divided into; 0 = not known."""
    if split := options.splits.get(gpu):
        return split.group_sms
    count = options.sm_counts.get(gpu, 0)
    return -(-count // _MOST_PARTS)


def jobs_on(gpu: int, jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that have a process there, in order of arrival."""
    here = (job for job in jobs if any(gpu in p.gpus for p in job.processes.values()))
    return sorted(here, key=lambda job: job.arrival)


def claim_of(job: Job, gpu: int, options: Options) -> Claim:
    """Return what is known of its use for SMs; it has no use for a set that would not hold it."""
    has_use = gpu not in options.splits or has_use_of_set(job, gpu)
    return Claim(
        name=job.display_name,
        job_class=job.spec.job_class,
        asked_sms=asked_sms(job, gpu, options),
        asked=said(job.spec),
        curve=job.scaling if has_use else None,
        doubt=f"how it scales is not known: {why_no_curve(job)}" if has_use else _OUT_OF_SETS,
        slo_ns=round(limit_ns(job, job.spec.slo_p99_ns * _OF_LIMIT)) if job.spec.slo_p99_ns else 0,
    )
