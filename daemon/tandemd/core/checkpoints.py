"""Which processes the driver saves to the host as a whole: of paused jobs that asked for it.

Memory that moves piece by piece (residency.py) leaves contexts, pools and arrays on the GPU, and
needs the shim's allocator. A checkpoint takes everything, and needs the driver's word that it can:
where it says no the memory stays. What nobody knows of a process that has just attached, since an
earlier daemon may have saved it, is found out by bringing it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tandemd.core.events import CheckpointProcess, ProcessCheckpointed
from tandemd.core.model import Group, Job, Process, Usage

RETRY_NS = 250_000_000  # others may have the room that a process needs to come back


@dataclass(slots=True, kw_only=True)
class _Place:
    process: Process
    job: Job
    is_here: bool | None = None  # on its GPUs; None: not known
    is_moving: bool = False  # it was asked for, and has not ended
    stays: bool = False  # it could not be saved: not tried again before the next pause
    not_before_ns: int = 0
    problem: str = ""  # why it could not be saved or come back, in the driver's words


class Checkpoints:
    """Who was saved. Pure; belongs to the scheduler."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}  # by process; empty costs nothing
        self.wake_at_ns: int | None = None

    @property
    def is_used(self) -> bool:
        """Somebody asked for it."""
        return bool(self._places)

    def watch(self, process: Process, job: Job) -> None:
        """The process attached."""
        if job.spec.checkpoint:
            self._places[process.process_id] = _Place(process=process, job=job)

    def forget(self, process: Process) -> None:
        """The process is gone."""
        self._places.pop(process.process_id, None)

    def seen(self, usage: Usage) -> Usage:
        """What a process says of itself, with what it cannot know: that it is not on the GPU."""
        place = self._places.get(usage.process_id)
        if place is None or place.is_here is not False:
            return usage
        size_bytes = usage.device_bytes
        return replace(usage, swappable_bytes=size_bytes, swapped_bytes=size_bytes)

    def problem_of(self, job: Job) -> str:
        """Why a process of the job stays where it is, in the driver's words; "" if it does not."""
        places = (self._places.get(process_id) for process_id in job.processes)
        return next((place.problem for place in places if place and place.problem), "")

    def take(self, event: ProcessCheckpointed) -> Job | None:
        """A process was saved, or brought back, or could not be; the job that this is news for."""
        place = self._places.get(event.process_id)
        if place is None:
            return None  # left meanwhile
        place.is_moving = False
        if event.away:
            self._take_saved(place, event)
        else:
            self._take_back(place, event)
        return place.job

    def _take_saved(self, place: _Place, event: ProcessCheckpointed) -> None:
        if event.problem:
            # It may be neither saved nor let go on: looked at again, as one that has just attached.
            place.is_here, place.stays, place.problem = None, True, event.problem
            place.job.tell(event.now_ns, f"its memory stays on the gpu: {event.problem}")
            return
        place.is_here, place.problem = False, ""
        place.process.usage = self.seen(place.process.usage)
        place.process.unseen_bytes = 0  # its contexts went as well
        place.job.tell(event.now_ns, "the driver saved it to the host, with all of its memory")

    def _take_back(self, place: _Place, event: ProcessCheckpointed) -> None:
        if event.problem:
            place.is_here, place.not_before_ns = False, event.now_ns + RETRY_NS
            if place.problem != event.problem:
                place.problem = event.problem
                place.job.tell(event.now_ns, f"it is still on the host: {event.problem}")
            return
        if place.is_here is False:
            usage = place.process.usage
            place.process.usage = replace(usage, swappable_bytes=0, swapped_bytes=0)
            place.job.tell(event.now_ns, "the driver brought it back to the gpu")
        place.is_here = True
        if not place.stays:
            place.problem = ""

    def decide(self, groups: Iterable[Group], now_ns: int) -> list[CheckpointProcess]:
        """Whom to save or to bring back now."""
        self.wake_at_ns = None
        found = []
        for group in groups:
            for process_id in group.processes:
                place = self._places.get(process_id)
                if place is None or place.is_moving:
                    continue
                if place.stays and not group.paused:
                    place.stays, place.problem = False, ""
                place.is_moving = self._has_to_move(place, group, now_ns)
                if place.is_moving:
                    away = place.is_here is True
                    found.append(CheckpointProcess(process_id=process_id, away=away))
        return found

    def _has_to_move(self, place: _Place, group: Group, now_ns: int) -> bool:
        if place.is_here:
            return group.paused and group.drained and not group.open and not place.stays
        if group.paused and place.is_here is False:
            return False
        if now_ns >= place.not_before_ns:
            return True
        self.wake_at_ns = min(place.not_before_ns, self.wake_at_ns or place.not_before_ns)
        return False

    def leave(self) -> list[CheckpointProcess]:
        """The daemon ends: everybody comes back."""
        return [
            CheckpointProcess(process_id=process_id, away=False)
            for process_id, place in self._places.items()
            if place.is_moving or not place.is_here
        ]
