"""How many SMs a job's kernels may use, by the mode of its GPU, and how it scales on others."""

from __future__ import annotations

from collections.abc import Iterable

from tandemd.core.events import ScalingTold
from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import Job, Options, Process
from tandemd.core.space.asked import said_share
from tandemd.core.space.set_places import groups_asked
from tandemd.core.space.sets import Span
from tandemd.core.substrate import divides_space


def given_sms(job: Job, gpu: int, options: Options) -> int:
    """Return the SMs of `gpu` it may use; 0 = not known, or its streams differ in that."""
    count = options.sm_counts.get(gpu, 0)
    if any(process.is_beside_mps for process in job.processes.values()):
        return count
    split = options.splits.get(gpu)
    if split and not is_out_of_sets(job, gpu):
        if stays_out(job, gpu):
            return 0 if _goes(job, gpu) else count
        return _in_set(job, gpu) * split.group_sms
    if not divides_space([gpu], options):
        return count
    share = mps_share(job, gpu) or said_share(job.spec, [gpu], options)
    return max(1, round(count * share)) if share and count else count


def mps_share(job: Job, gpu: int) -> float:
    """Return the fraction of the SMs that MPS allows its processes there, 0..1; 0 = not known."""
    return max((process.mps_percent for process in _here(job, gpu)), default=0.0) / 100


def _here(job: Job, gpu: int) -> list[Process]:
    return [process for process in job.processes.values() if gpu in process.gpus]


def _in_set(job: Job, gpu: int) -> int:
    """Return the groups of its set; 0 if some process is not there yet, or never will be."""
    if job.set is None or any(_span_of(process) != job.set for process in _here(job, gpu)):
        return 0
    return job.set.count


def why_no_curve(job: Job) -> str:
    """Return why it is not known how the job scales; empty: it is."""
    is_split = any(stays_out(job, gpu) and _goes(job, gpu) for gpu in gpus_of(job))
    if job.scaling is None and is_split:
        return "some of its work is in its set and some on the whole gpu"
    return job.scaling_doubt


def stays_out(job: Job, gpu: int) -> bool:
    """Tell whether some of its work is on the whole GPU, whatever its set is."""
    return any(process.usage.stays_out for process in _here(job, gpu))


def has_use_of_set(job: Job, gpu: int) -> bool:
    """Tell whether some of its work can be in a set there."""
    return not stays_out(job, gpu) or _goes(job, gpu)


def is_out_of_sets(job: Job, gpu: int) -> bool:
    """Tell whether a process of it can have no set for as long as it runs."""
    return any(process.has_no_set for process in _here(job, gpu))


def holds_percentage(job: Job, gpu: int) -> bool:
    """Tell whether MPS holds a process of it to a part of the SMs, for good and in any mode."""
    return any(process.has_percentage for process in _here(job, gpu))


def _goes(job: Job, gpu: int) -> bool:
    """Tell whether some of its streams are in its set."""
    return any(process.usage.following_streams for process in _here(job, gpu))


def _span_of(process: Process) -> Span | None:
    """Return the set its streams are in; None: not known, or the whole GPU."""
    is_in = process.usage.in_set
    return Span(is_in.first, is_in.count) if is_in and is_in.count else None


def has_own_sms(job: Job, others: Iterable[Job], gpu: int) -> bool:
    """Tell whether it is in a set there that no other job is in, can enter, or covers."""
    return _in_set(job, gpu) > 0 and not any(
        _may_use(job.set, other, process)
        for other in others
        for process in other.processes.values()
        if other is not job and gpu in process.gpus
    )


def _may_use(span: Span | None, other: Job, process: Process) -> bool:
    is_in, is_to_be = _span_of(process), other.set
    if span is None or is_in is None or is_to_be is None or process.usage.stays_out:
        return True
    return bool(span.overlap(is_in) or span.overlap(is_to_be))


def asked_sms(job: Job, gpu: int, options: Options) -> int:
    """Return what its `--sm` comes to there, even if it is a share of time; 0 = none is asked."""
    count = options.sm_counts.get(gpu, 0)
    if split := options.splits.get(gpu):
        return groups_asked(job.spec, split) * split.group_sms
    return round(count * said_share(job.spec, [gpu], options))


def take_scaling(process: Process, event: ScalingTold) -> None:
    """Keep a curve that was told; note what the one before predicted for as many SMs."""
    if event.curve is None:
        process.scaling_doubt = "" if process.scaling else event.doubt
        return
    sms, before = event.curve.recorded_sms, process.scaling
    if before is not None and before.recorded_sms != sms:
        process.foretold_ns = round(before.at(sms))
    process.scaling, process.scaling_doubt = event.curve, ""
