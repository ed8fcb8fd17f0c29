"""Holds what a job says of its memory against what the driver says.

A shim's figure is a hint: a process can hold more by ways that are not intercepted, or write into
its page what it likes. It is one figure for all GPUs. The driver's has what contexts, code and
libraries take on each of them as well, which the shim does not count; hence the slack. One look may
fall between a free and its report: only what two looks in a row say is told.
"""

from __future__ import annotations

from collections.abc import Mapping

from tandemd.core.events import MemoryAudited
from tandemd.core.model import Job, Process

SLACK_BYTES = 1 << 30  # on each GPU that the process is on
LOOKS = 2


def take_audit(
    event: MemoryAudited, processes: Mapping[int, Process], jobs: Mapping[int, Job]
) -> None:
    """Note the driver's figures; the story of a job tells once when one is far above its claim."""
    for process_id, held_bytes in event.held_bytes:
        process = processes.get(process_id)
        if process is None:  # it has ended meanwhile
            continue
        process.audited_bytes = sum(held_bytes)
        unseen_bytes = process.audited_bytes - process.usage.resident_bytes
        process.unseen_bytes = max(0, unseen_bytes)
        if unseen_bytes <= len(held_bytes) * SLACK_BYTES:
            process.audit_misses = 0
            continue
        process.audit_misses += 1
        if process.audit_misses == LOOKS:
            jobs[process.job_id].tell(event.now_ns, describe(process))


def is_unaccounted(process: Process) -> bool:
    """Whether the driver says much more than the process does, look after look."""
    return process.audit_misses >= LOOKS


def describe(process: Process) -> str:
    """The two figures, for people."""
    claimed, held = process.usage.device_bytes, process.audited_bytes
    return (
        f"process {process.process_id} holds memory that its shim has not seen: "
        f"{_mib(held)} by the driver's count, {_mib(claimed)} by its own"
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"
