"""What became of `--sm` and `--isolation`, for people."""

from __future__ import annotations

from tandemd.core.model import Job
from tandemd.core.scheduler import Scheduler
from tandemd.core.space import owed_share, said, share_of, unfit, why_no_share
from tandemd.core.substrate import SUBSTRATES


def space_lines(scheduler: Scheduler, job: Job, got: float) -> list[str]:
    """Nothing if nothing was asked for. `got`: of the GPU's time in the last second, 0..1."""
    group = scheduler.group_of(job)
    if group is None or not job.processes:
        return []
    options = scheduler.options
    lines = [why] if (why := unfit(job.spec, group.gpus, options)) else []
    asked = said(job.spec)
    if not asked:
        return lines
    if SUBSTRATES[options.mode_of(group.gpus)].divides_space:
        return [*lines, f"sm {asked} of the SMs, as `tandem run` set it when the job started"]
    if why_not := why_no_share(group, scheduler.policy, options):
        return [*lines, f"sm {asked} has no effect: {why_not}"]
    owed = owed_share(job, group, options)
    lines.append(
        f"sm {asked} is a share of time, not of SMs: owed {owed:.0%} of what it and the jobs get "
        f"that it takes turns with, while it has work; got {got:.0%} of the gpu in the last second"
    )
    if group.owed_share < 0.999 * share_of(group, options):
        lines.append("that is less than it asks for: all such shares together are too much")
    return lines
