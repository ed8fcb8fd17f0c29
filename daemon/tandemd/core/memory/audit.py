"""Compares what a job reports of its memory with what the driver reports.

A shim's figure is a hint: a process can allocate in ways that are not intercepted, or write what it
likes into its page. It is one figure for all GPUs. The driver's figure includes what contexts, code
and libraries take on each GPU, which the shim does not count; hence the slack.

One look may fall between a free and its report. A process reports what it takes before it asks the
driver, and a look asks the process just before and just after the driver, since usage may be 100 ms
old. Three filters follow. A story is told only what two looks in a row find. A claim far above what
is held is cut to what is held from the second look on. Of memory that a process does not count
itself, the median of three looks counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from tandemd.core.events import MemoryAudited
from tandemd.core.model import Job, Options, Process

SLACK_BYTES = 1 << 30  # on each GPU that the process is on
LOOKS = 2
WITHOUT_MPS = ("time", "mig")


def take_audit(
    event: MemoryAudited,
    processes: Mapping[int, Process],
    jobs: Mapping[int, Job],
    options: Options,
) -> None:
    """Take in the driver's figures; tell a job's story once if one is far from its claim."""
    for process_id, held_bytes in event.held_bytes:
        process = processes.get(process_id)
        if process is None:  # it has ended meanwhile
            continue
        # Memory of an MPS client may be listed under its server.
        is_client = any(options.mode_of([gpu]) not in WITHOUT_MPS for gpu in process.gpus)
        may_deny = event.is_complete and not is_client
        if not may_deny:
            process.denied_before_bytes = process.unheld_bytes = 0
            if not held_bytes:
                continue
        process.audited_bytes = sum(held_bytes)
        if may_deny:
            _look_for_overclaims(process, jobs, event.now_ns)
        counted_bytes = _counted_bytes(process, event.claims.get(process_id))
        beyond_bytes = process.audited_bytes - counted_bytes
        _note_unseen(process, max(0, beyond_bytes))
        if beyond_bytes <= len(held_bytes) * SLACK_BYTES:
            process.audit_misses = 0
            continue
        process.audit_misses += 1
        if process.audit_misses == LOOKS:
            jobs[process.job_id].tell(event.now_ns, describe(process))


def _counted_bytes(process: Process, claim: tuple[int, int] | None) -> int:
    """Return what it counts itself, plus what it asks for now and did not at the last look."""
    if claim is None:
        return process.usage.resident_bytes
    resident_bytes, taken_bytes = claim
    lasting_bytes = min(taken_bytes - resident_bytes, process.asked_bytes)
    process.asked_bytes = taken_bytes - resident_bytes
    return taken_bytes - lasting_bytes


def _note_unseen(process: Process, size_bytes: int) -> None:
    """Note a look; for the first two medians, earlier looks count as having found nothing."""
    process.unseen_looks = (*process.unseen_looks, size_bytes)[-3:]
    process.unseen_bytes = sorted((0, 0, *process.unseen_looks)[-3:])[1]


def forget_unseen(process: Process) -> None:
    """Reset a process that has no contexts any more."""
    process.unseen_looks, process.unseen_bytes = (), 0


def unseen_bytes(process: Process) -> int | None:
    """Return what the driver counts beyond the process's own count; None: not known yet."""
    return process.unseen_bytes if len(process.unseen_looks) >= LOOKS else None


def _look_for_overclaims(process: Process, jobs: Mapping[int, Job], now_ns: int) -> None:
    denied_bytes = process.usage.resident_bytes - process.audited_bytes
    if denied_bytes <= len(process.gpus) * SLACK_BYTES:
        denied_bytes = 0
    was_overclaimed = is_overclaimed(process)
    process.unheld_bytes = min(denied_bytes, process.denied_before_bytes)
    process.denied_before_bytes = denied_bytes
    if is_overclaimed(process) and not was_overclaimed:
        jobs[process.job_id].tell(now_ns, describe_overclaim(process))


def is_overclaimed(process: Process) -> bool:
    """Tell whether it claims much more than the driver reports, look after look."""
    return process.unheld_bytes > 0


def is_unaccounted(process: Process) -> bool:
    """Tell whether the driver reports much more than the process does, look after look."""
    return process.audit_misses >= LOOKS


def describe(process: Process) -> str:
    """Describe the two figures, for people."""
    claimed, held = process.usage.device_bytes, process.audited_bytes
    return (
        f"process {process.process_id} holds memory that its shim has not seen: "
        f"{_mib(held)} by the driver's count, {_mib(claimed)} by its own"
    )


def describe_overclaim(process: Process) -> str:
    """Like `describe`, for a process that claims to hold what it does not."""
    return (
        f"process {process.process_id} says that it holds {_mib(process.usage.resident_bytes)}, "
        f"but the driver says {_mib(process.audited_bytes)}, which is what counts for others"
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"
