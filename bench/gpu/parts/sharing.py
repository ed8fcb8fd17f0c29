"""How often memory is counted that one process has created and another has opened.

Under Tandem both processes belong to one job, as workers of a data loader do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.gpu.harness.children import told
from bench.gpu.parts.accounting import Run, ratio, settled
from tandem.demo.process import Message

KINDS = ("linear", "mapped", "pool")  # shared by CUDA IPC, a memory descriptor, a pool descriptor
NOT_LISTED = "not listed"


@dataclass(frozen=True, kw_only=True)
class Look:
    """The bytes that each party counts."""

    device: int  # everything that NVML sees
    processes: Mapping[str, int | None]  # by pid, as NVML lists them
    job: int | None  # by the daemon


def times_counted(run: Run) -> Message:
    """The bytes each party counts, relative to the request: once made, and once opened, too."""
    before = _look(run)
    made = told(run.worker, "made")
    asked, pids = made["asked_bytes"], [str(made["owner"]), str(run.worker.pid)]
    looks = {"made": _look(run)}
    told(run.worker, "opened")
    looks["opened"] = _look(run)
    told(run.worker, "freed")
    left_bytes = _look(run).device - before.device
    times = {name: _times(look, before, asked, pids) for name, look in looks.items()}
    return {"asked_bytes": asked, **times, "left_bytes": left_bytes}


def _times(look: Look, before: Look, asked: int, pids: list[str]) -> Message:
    listed = [(look.processes.get(pid), before.processes.get(pid)) for pid in pids]
    added = [after - old for after, old in listed if after is not None and old is not None]
    found: Message = {
        "device": ratio(look.device - before.device, asked),
        "processes": ratio(sum(added), asked) if len(added) == len(pids) else NOT_LISTED,
    }
    if look.job is not None and before.job is not None:
        found["job"] = ratio(look.job - before.job, asked)
    return found


def _look(run: Run) -> Look:
    job = None if run.job_bytes is None else settled(run.job_bytes)
    said = told(run.reader, "read")
    return Look(device=said["used_bytes"], processes=said["processes"], job=job)
