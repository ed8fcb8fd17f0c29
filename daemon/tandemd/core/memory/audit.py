"""Holds what a job says of its memory against what the driver says.

A shim's figure is a hint: a process can hold more by ways that are not intercepted, or write into
its page what it likes. It is one figure for all GPUs. The driver's has what contexts, code and
libraries take on each of them as well, which the shim does not count; hence the slack.
One look may fall between a free and its report. A process says what it takes before it asks the
driver, and a look asks the process just before and after the driver, since usage may be 100 ms old.
Only what two looks in a row say is told, a claim that is far above what is held counts only as much
as that from the second on, and of what a process does not count itself the median of three looks
counts.
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
    """Note the driver's figures; the story of a job tells once when one is far from its claim."""
    for process_id, held_bytes in event.held_bytes:
        process = processes.get(process_id)
        if process is None:  # it has ended meanwhile
            continue
        # What a client of MPS holds may stand under its server.
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
    """What it counts itself, and what it was asking for if that is not always so."""
    if claim is None:
        return process.usage.resident_bytes
    resident_bytes, taken_bytes = claim
    lasting_bytes = min(taken_bytes - resident_bytes, process.asked_bytes)
    process.asked_bytes = taken_bytes - resident_bytes
    return taken_bytes - lasting_bytes


def _note_unseen(process: Process, size_bytes: int) -> None:
    """Looks from before it attached, of which the first two medians are made, saw nothing."""
    process.unseen_looks = (*process.unseen_looks, size_bytes)[-3:]
    process.unseen_bytes = sorted((0, 0, *process.unseen_looks)[-3:])[1]


def forget_unseen(process: Process) -> None:
    """It has no contexts any more."""
    process.unseen_looks, process.unseen_bytes = (), 0


def unseen_bytes(process: Process) -> int | None:
    """What the driver counts beyond what the process itself does; None: not known yet."""
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
    """Whether it says that it holds much more than the driver says, look after look."""
    return process.unheld_bytes > 0


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


def describe_overclaim(process: Process) -> str:
    """The same of a process that says that it holds what it does not."""
    return (
        f"process {process.process_id} says that it holds {_mib(process.usage.resident_bytes)}, "
        f"the driver that it holds {_mib(process.audited_bytes)}: that is what counts for others"
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"
