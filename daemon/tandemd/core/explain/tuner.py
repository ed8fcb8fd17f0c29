"""Explains what the tuner does, or would do, for a job with an objective."""

from __future__ import annotations

from tandemd.core.model import Group, Job
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.asked import said, why_no_share
from tandemd.core.substrate import SUBSTRATES
from tandemd.core.words import counted


def tuner_lines(scheduler: Scheduler, job: Job, group: Group) -> list[str]:
    """Describe the tuner's work for the job; nothing without an objective."""
    if not job.spec.slo_p99_ns or not job.processes:
        return []
    if not scheduler.options.tuner:
        return ["tuner: off (partition.tuner), so its size does not follow its objective"]
    tuning = scheduler.tuning
    lines = [f"tuner: {_lever(scheduler, job, group)}"]
    wish = tuning.wishes.get(job.job_id)
    if wish is not None:
        stands = _stands(job, divides_space=_divides_space(scheduler, group))
        unit = " groups of SMs" if job.set else "%"
        lines.append(f"tuner: it would get {wish.size}{unit}, because {wish.why}; {stands}")
    if why := tuning.reasons.get(job.job_id):
        lines.append(f"tuner: its newest change was made because {why}")
    residual = tuning.residual(job.job_id)
    if residual is not None:
        held = "below" if residual >= 0 else "above"
        lines.append(f"tuner: p99 of its last window was {abs(residual):.0%} {held} its objective")
    return lines


def _lever(scheduler: Scheduler, job: Job, group: Group) -> str:
    if job.set is not None:
        stays = f" and stays there, because of --sm {said(job.spec)}" if said(job.spec) else ""
        return f"it is on {counted(job.set.count, 'group')} of SMs{stays}"
    if _divides_space(scheduler, group):
        return "its part of the SMs is fixed while it runs"
    return _lever_of_time(scheduler, job, group)


def _lever_of_time(scheduler: Scheduler, job: Job, group: Group) -> str:
    if said(job.spec):
        return f"its share of time is fixed by --sm {said(job.spec)}"
    if why_not := why_no_share(group, scheduler.policy, scheduler.options):
        return f"it has no effect on this job: {why_not}"
    if group.tuned_share:
        return f"its share of time is {group.owed_share:.0%}"
    return "its share of time is that of its class"


def _divides_space(scheduler: Scheduler, group: Group) -> bool:
    substrate = SUBSTRATES[scheduler.options.mode_of(group.gpus)]
    return substrate.divides_space and not substrate.is_live


def _stands(job: Job, *, divides_space: bool) -> str:
    if divides_space:
        return "for that the job has to be restarted with `tandem run --sm`"
    return f"but --sm has priority, until `tandem set {job.display_name} sm=none`"
