"""Accounting of an ended job, kept long after the job itself is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tandemd.core.model import Job, JobClass, WaitReason
from tandemd.core.sums import total

ENDED, CANCELLED = "ended", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A job from its registration to its end; times are Unix time."""

    job_id: int
    uid: int
    user: str  # name of the uid at that time
    name: str
    group: str
    job_class: JobClass
    gpus: tuple[str, ...]  # used GPUs, by their names at that time
    command: str
    began_wall_ns: int
    ended_wall_ns: int
    outcome: str  # ENDED, CANCELLED
    gpu_ns: int
    shared_ns: int  # the estimated part of `gpu_ns`
    energy_mj: int | None = None  # attributed energy; None: not known, or not recorded then
    waited_ns: int  # waits of its threads, except for its own window
    peak_bytes: int
    launches: int
    iterations: int
    refusals: int  # out-of-memory answers
    findings: tuple[str, ...]  # watchdog rules


def past_of(
    job: Job,
    *,
    user: str,
    command: str,
    name_of: Callable[[int], str],
    wall_ns: Callable[[int], int],
) -> PastJob:
    """The accounting of a job that has just ended."""
    waits_ns = enumerate(job.waited_ns(job.ended_ns))
    told = (line.partition(" ") for _, line, _ in job.events.counted())
    return PastJob(
        job_id=job.job_id,
        uid=job.uid,
        user=user,
        name=job.spec.name,
        group=job.spec.group,
        job_class=job.spec.job_class,
        gpus=tuple(map(name_of, sorted(job.used_gpus))),
        command=command,
        began_wall_ns=wall_ns(job.created_ns),
        ended_wall_ns=wall_ns(job.ended_ns),
        outcome=CANCELLED if job.cancel else ENDED,
        gpu_ns=job.gpu_ns,
        shared_ns=job.shared_ns,
        waited_ns=total(ns for reason, ns in waits_ns if reason != WaitReason.WINDOW),
        peak_bytes=job.peak_bytes,
        launches=job.launches,
        iterations=job.iterations,
        refusals=total(job.refused_by),
        findings=tuple(sorted(rule for kind, _, rule in told if kind == "finding")),
    )
