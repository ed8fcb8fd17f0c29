"""Finds processes that run beside MPS in mode mps: they have work, and MPS does not list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tandemd.core.events import MpsClientsListed, SubstrateFailed
from tandemd.core.memory.minima import gpus_of
from tandemd.core.model import MPS_MISSES, Job, JobState, Process

NO_CLIENT = (
    "it is not a client of mps: its kernels run beside no others, but in turns with all of them"
)


def take_clients(
    event: MpsClientsListed, processes: Mapping[int, Process], jobs: Mapping[int, Job]
) -> None:
    """Take in a list of clients; a process with a context is a client before it runs anything.

    If it is not a client then, it never will be. A process that was a client and is no longer
    listed has lost its server, and learns that from CUDA's errors.
    """
    for process in processes.values():
        if process.gpu in event.gpus and process.process_id in event.process_ids:
            process.was_mps_client = True
        if process.gpu not in event.gpus or process.was_mps_client:
            process.mps_misses = 0
        elif process.usage.launches:
            process.mps_misses += 1
            if process.mps_misses == MPS_MISSES:
                jobs[process.job_id].tell(event.now_ns, NO_CLIENT)


def tell_of_mps(event: SubstrateFailed, jobs: Iterable[Job]) -> None:
    """Tell all jobs that run on MPS, are about to, or may have died from the failure unnoticed."""
    for job in jobs:
        left = job.left_gpus if job.left_ns >= event.since_ns else frozenset()
        if (gpus_of(job) | left) & event.gpus or _may_have_come(job, event):
            job.tell(event.now_ns, event.what)


def _may_have_come(job: Job, event: SubstrateFailed) -> bool:
    """Tell whether it may be in cuInit: without a context yet, but already talking to MPS."""
    has_ended = job.state is JobState.EXITED and job.ended_ns < event.since_ns
    has_been_seen = bool(job.processes) or job.left_ns > 0
    is_meant = bool(job.meant_gpus) and job.meant_gpus <= event.gpus
    return is_meant and not has_been_seen and not has_ended


def beside_mps(job: Job) -> str:
    """Return what its users should know about that; empty: nothing."""
    outside, count = sum(p.is_beside_mps for p in job.processes.values()), len(job.processes)
    if not outside:
        return ""
    which = "" if outside == count else f" ({outside} of {count} processes)"
    return (
        f"{NO_CLIENT}{which}, and no percentage limits it; it was started without the daemon's "
        "CUDA_MPS_PIPE_DIRECTORY, or before mps ran"
    )
