"""Explains what became of `--sm` and `--isolation`."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.explain.sets import set_lines
from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import Group, Job, Options
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.asked import owed_share, said, said_share, share_of, unfit, why_no_share
from tandemd.core.space.mps_clients import beside_mps
from tandemd.core.space.sm_counts import mps_share
from tandemd.core.substrate import divides_space

ROUNDING = 0.001  # a percentage has four digits


def space_lines(scheduler: Scheduler, job: Job, got: float) -> list[str]:
    """Describe the effect; `got`: its part of the GPU's time in the last second, 0..1."""
    group = scheduler.group_of(job)
    if group is None or not job.processes:
        return []
    options = scheduler.options
    lines = [why] if (why := unfit(job.spec, group.gpus, options)) else []
    lines += set_lines(job, group, options)
    lines += _idle_lines(scheduler, job, group)
    asked = said(job.spec)
    if why := beside_mps(job):
        return [*lines, why]
    if options.mode_of(group.gpus) == "mps":
        lines += _percentage(job, asked, options)
        return [*lines, *_too_much_of_mps(scheduler, group)] if asked else lines
    if not asked or job.set or divides_space(group.gpus, options):
        return lines
    if why_not := why_no_share(group, scheduler.policy, options):
        return [*lines, f"sm {asked} has no effect: {why_not}"]
    owed = owed_share(job, group, options)
    lines.append(
        f"sm {asked} is a share of time, not of SMs: while it has work, it is owed {owed:.0%} of "
        f"what it and the jobs that it takes turns with get; it got {got:.0%} of the gpu in the "
        "last second"
    )
    if group.owed_share < 0.999 * share_of(group, options):
        lines.append("that is less than it asks for: all such shares add up to too much")
    return lines


def _percentage(job: Job, asked: str, options: Options) -> Iterator[str]:
    """Yield the percentage of SMs that MPS allows it, and who set it."""
    gpus = gpus_of(job)
    share = max(mps_share(job, gpu) for gpu in gpus)
    meant = said_share(job.spec, gpus, options)
    if not share:
        yield (
            f"sm {asked}, as set by `tandem run` when the job started, unless the job "
            "brought a percentage of its own"
            if asked
            else "its shim does not say whether MPS lets it have all SMs"
        )
    elif asked and abs(share - meant) < ROUNDING:
        yield f"sm {asked}: MPS lets it use {_percent(share)} of the SMs, as set by `tandem run`"
    elif share < 1:
        in_vain = f", so sm {asked} has no effect" if asked else ""
        yield (
            f"MPS lets it use at most {_percent(share)} of the SMs, because of its own "
            f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE{in_vain}"
        )
    elif asked:
        yield (
            f"sm {asked} has no effect: MPS lets it use all SMs, because it started without the "
            "percentage that `tandem run` would have set in this mode"
        )
    else:
        yield "MPS lets it use all SMs: it has no percentage"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _idle_lines(scheduler: Scheduler, job: Job, group: Group) -> list[str]:
    """Warn about idle SMs: without companions, jobs on different sets also take turns."""
    policy, found = scheduler.policy, scheduler.island_of(group)
    if job.set is None or found is None or policy.companions or policy.always_open(group):
        return []
    held = [one for other in found[0] if not policy.always_open(other) for one in other.jobs]
    sets = [scheduler.jobs[one].set for one in held]
    if not any(one and not one.overlap(job.set) for one in sets):
        return []
    or_planned = "" if scheduler.options.planner else ', or with partition.planner = "on",'
    return [
        "it takes turns with jobs on other SMs, which are idle meanwhile: under "
        f"{scheduler.options.policy} one of these runs at a time; under pair{or_planned} they can "
        "run side by side"
    ]


def _too_much_of_mps(scheduler: Scheduler, group: Group) -> list[str]:
    options = scheduler.options
    if options.mode_of(group.gpus) != "mps":
        return []
    beside = [job for job in scheduler.jobs.values() if gpus_of(job) & group.gpus]
    together = sum(said_share(job.spec, gpus_of(job), options) for job in beside)
    if together <= 1:
        return []
    return [
        f"jobs here ask for {together:.0%} of the SMs together, which mps allows: each percentage "
        "limits one job, and some SMs serve several"
    ]
