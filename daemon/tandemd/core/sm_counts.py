"""How many SMs a job's kernels may use, by the mode of its GPU, and what was told of others."""

from __future__ import annotations

from collections.abc import Iterable

from tandemd.core.events import ScalingTold
from tandemd.core.model import Job, Options, Process
from tandemd.core.set_places import groups_asked
from tandemd.core.space import said_share
from tandemd.core.substrate import SUBSTRATES


def given_sms(job: Job, gpu: int, options: Options) -> int:
    """Of `gpu`; 0 = not known."""
    count = options.sm_counts.get(gpu, 0)
    if split := options.splits.get(gpu):
        return _in_set(job, gpu) * split.group_sms
    if not SUBSTRATES[options.mode_of([gpu])].divides_space:
        return count
    share = said_share(job.spec, [gpu], options)
    return max(1, round(count * share)) if share and count else count


def _in_set(job: Job, gpu: int) -> int:
    """Groups of its set; 0 also while some process of it is not there yet."""
    sets = [p.usage.in_set for p in job.processes.values() if gpu in p.gpus]
    if job.set is None or any(one and one.count not in (0, job.set.count) for one in sets):
        return 0
    return job.set.count


def has_own_sms(job: Job, jobs: Iterable[Job], gpu: int) -> bool:
    """It has a set there that is nobody else's."""
    return job.set is not None and not any(
        other is not job and other.set is not None and other.set.overlap(job.set)
        for other in jobs
        if any(gpu in process.gpus for process in other.processes.values())
    )


def asked_sms(job: Job, gpu: int, options: Options) -> int:
    """What its `--sm` comes to there, also where that is a share of time; 0 = nothing was said."""
    count = options.sm_counts.get(gpu, 0)
    if split := options.splits.get(gpu):
        return groups_asked(job.spec, split) * split.group_sms
    return round(count * said_share(job.spec, [gpu], options))


def take_scaling(process: Process, event: ScalingTold) -> None:
    """Keep what was told; what the curve before had said of as many SMs is compared with it."""
    if event.curve is None:
        process.scaling_doubt = "" if process.scaling else event.doubt
        return
    sms, before = event.curve.recorded_sms, process.scaling
    if before is not None and before.recorded_sms != sms:
        process.foretold_ns = round(before.at(sms))
    process.scaling, process.scaling_doubt = event.curve, ""
