"""How many SMs a process counts for when time that it shares with others is split.

Where kernels of several processes run side by side (MPS), a process that fills 4 of 132 SMs leaves
nearly all of the GPU to the others, and is charged accordingly less for the time they run together.
Its demand is the first of these that is known:
    its set    what it has alone, or shares in turns (a part of a plan): nobody else can use these
               SMs, however few of them its kernels fill
    kernels    the SMs that hold the grids of its kernels, ceil(blocks / blocks an SM holds) like
               Orion's sm_needed (Strati et al., EuroSys 2024): the mean over the time of its
               kernels in a recorded iteration (Curve.held_sms), recorded on at least as many SMs
               as it may use now
    all        the SMs that it may use: what is not known is taken to be large, as an unknown grid
               is everywhere (csrc/core/dag/analysis/waves.h), so that hiding does not pay
It is a whole number, at least 1, and at most its set, its MPS percentage, or the GPU.

Its error is that of the record: the record is at most about ten seconds old; registers and shared
memory may allow fewer blocks per SM than assumed; copies, bandwidth and caches are not included.

Contexts that take turns on the GPU (mode `time`, an instance of MIG) each have all SMs for equally
long, whatever their kernels fill. There SMs do not count, and time is split evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tandemd.core.model import Group, Job, Options, Process
from tandemd.core.space.sm_counts import given_sms


class Source(Enum):
    """What a demand was derived from, for people."""

    SET = "its set"
    KERNELS = "the grids of its kernels"
    ALL = "all it may use: its kernels are not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a process counts for on its first GPU, where its time is charged."""

    sms: int
    most_sms: int  # of its group, however many processes that has there
    source: Source


def demand_of(process: Process, job: Job, group: Group, options: Options) -> Demand | None:
    """Return the demand; None: SMs do not count there, and shared time is split evenly."""
    gpu = process.gpu
    count = options.sm_counts.get(gpu, 0)
    if not count or not options.overlaps([gpu]):
        return None
    given = given_sms(job, gpu, options) or count
    most_sms = _most_sms(group, gpu, options, count) if gpu in options.splits else count
    if given < count and _keeps_its_set(job, gpu, options):
        return Demand(sms=given, most_sms=most_sms, source=Source.SET)
    curve = process.scaling
    is_known = curve is not None and curve.held_sms > 0 and curve.recorded_sms >= given
    # Beside MPS it takes turns with all MPS clients at once, and then has all SMs.
    if curve is None or not is_known or process.is_beside_mps:
        return Demand(sms=given, most_sms=most_sms, source=Source.ALL)
    held = max(1, round(curve.held_sms))
    return Demand(sms=min(held, given), most_sms=most_sms, source=Source.KERNELS)


def demand_of_group(group: Group, gpu: int, options: Options) -> Demand | None:
    """Return the demand of all its processes charged there, as if all were busy, or None."""
    found = [
        demand
        for process in group.processes.values()
        if process.gpu == gpu
        and (demand := demand_of(process, group.jobs[process.job_id], group, options))
    ]
    if not found:
        return None
    most_sms, vague = max(demand.most_sms for demand in found), max(found, key=_vagueness)
    sms = min(most_sms, sum(demand.sms for demand in found))
    return Demand(sms=sms, most_sms=most_sms, source=vague.source)


def _vagueness(demand: Demand) -> int:
    return list(Source).index(demand.source)


def _keeps_its_set(job: Job, gpu: int, options: Options) -> bool:
    """Tell whether nobody runs on its set at the same time: it is alone there, or takes turns."""
    return gpu in options.splits and job.set is not None and bool(job.part or job.groups_wanted)


def _most_sms(group: Group, gpu: int, options: Options, count: int) -> int:
    """Return the SMs of the sets of its jobs there."""
    here = [
        job
        for job in group.jobs.values()
        if any(process.gpu == gpu for process in job.processes.values())
    ]
    return min(count, sum(given_sms(job, gpu, options) or count for job in here))
