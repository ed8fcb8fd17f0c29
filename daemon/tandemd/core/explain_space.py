"""What became of `--sm` and `--isolation`, for people."""

from __future__ import annotations

from tandemd.core.model import Group, Job
from tandemd.core.scheduler import Scheduler
from tandemd.core.space import owed_share, said, share_of, unfit
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
    if why_not := no_share(group, scheduler):
        return [*lines, f"sm {asked} has no effect: {why_not}"]
    owed = owed_share(job, group, options)
    lines.append(
        f"sm {asked} is a share of time, not of SMs: owed {owed:.0%} of what it and the jobs get "
        f"that it takes turns with, while it has work; got {got:.0%} of the gpu in the last second"
    )
    if group.owed_share < 0.999 * share_of(group, options):
        lines.append("that is less than it asks for: all such shares together are too much")
    return lines


def no_share(group: Group, scheduler: Scheduler) -> str | None:
    """Why a share of time means nothing to a group now; None: it counts."""
    policy, options = scheduler.policy, scheduler.options
    if policy.quantum_ns(options) is None:
        return f"under {options.policy} a turn does not end while there is work"
    if policy.always_open(group):
        return f"under {options.policy} its class takes no turns: it is never held"
    if group.undrainable:
        return "it is undrainable, and takes no turns"
    if group.is_closed:
        return "it is held, and takes no turns"
    return None
