"""How many SMs a job's kernels may use, by the mode of its GPU, and what was told of others."""

from __future__ import annotations

from tandemd.core.events import ScalingTold
from tandemd.core.model import Job, Options, Process
from tandemd.core.space import said_share
from tandemd.core.substrate import SUBSTRATES


def given_sms(job: Job, gpu: int, options: Options) -> int:
    """Of `gpu`; 0 = not known."""
    count = options.sm_counts.get(gpu, 0)
    if not SUBSTRATES[options.mode_of([gpu])].divides_space:
        return count
    if job.set is not None and gpu in options.splits:
        return job.set.count * options.splits[gpu].group_sms
    share = said_share(job.spec, [gpu], options)
    return max(1, round(count * share)) if share and count else count


def asked_sms(job: Job, gpu: int, options: Options) -> int:
    """What its `--sm` comes to there, also where that is a share of time; 0 = nothing was said."""
    count = options.sm_counts.get(gpu, 0)
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
