"""Which processes the driver saves to the host as a whole: those of paused jobs that asked for it.

Memory that moves piece by piece (residency.py) leaves contexts, pools and arrays on the GPU, and
needs the shim's allocator. A checkpoint takes everything, but the driver must be able to make one:
where it refuses, the memory stays. A process that has just attached may have been saved by an
earlier daemon. It is treated like any other, and the driver knows what there is to do.

A save is many gigabytes, and a save that the driver does not finish is stuck for good. So only a
few are asked for at a time and the others wait in line; a process that comes back never waits
behind a save.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tandemd.core.events import CheckpointProcess, ProcessCheckpointed
from tandemd.core.memory.audit import forget_unseen
from tandemd.core.model import Group, Job, Process, Usage

RETRY_NS = 250_000_000  # other processes may hold the room that one needs to come back
MOST_SAVES = 4  # at a time: more would only share the link
MOST_RETURNS = 16


@dataclass(slots=True, kw_only=True)
class _Place:
    process: Process
    job: Job
    is_here: bool | None = None  # on its GPUs; None: not known
    is_moving: bool = False  # a move was asked for and has not ended
    away: bool = False  # where it moves to, if it moves
    stays: bool = False  # it could not be saved: not tried again before the next pause
    not_before_ns: int = 0
    problem: str = ""  # why it could not be saved or come back, in the driver's words


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What the driver does for a process now, or will do."""

    away: bool
    ahead: int  # others served first in the same direction; 0: it is under way


class Checkpoints:
    """Which processes were saved. Pure; belongs to the scheduler."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}  # by process id; empty costs nothing
        self._line: dict[int, bool] = {}  # who is to move, in order of arrival, and whether away
        self.wake_at_ns: int | None = None

    @property
    def is_used(self) -> bool:
        """True if some process asked for it."""
        return bool(self._places)

    def watch(self, process: Process, job: Job) -> None:
        """Start to track a process that has attached."""
        if job.spec.checkpoint:
            self._places[process.process_id] = _Place(process=process, job=job)

    def forget(self, process: Process) -> None:
        """Drop a process that is gone."""
        self._places.pop(process.process_id, None)
        self._line.pop(process.process_id, None)

    def seen(self, usage: Usage) -> Usage:
        """Return what a process reports, corrected by what it cannot know: that it is saved."""
        place = self._places.get(usage.process_id)
        if place is None or place.is_here is not False:
            return usage
        size_bytes = usage.device_bytes
        return replace(usage, swappable_bytes=size_bytes, swapped_bytes=size_bytes)

    def problem_of(self, job: Job) -> str:
        """Return why a process of the job stays where it is, in the driver's words; "" if none."""
        places = (self._places.get(process_id) for process_id in job.processes)
        return next((place.problem for place in places if place and place.problem), "")

    def move_of(self, job: Job) -> Move | None:
        """Return the move that comes last among the job's processes, if any has one."""
        moves = [move for process_id in job.processes if (move := self._move_of(process_id))]
        return max(moves, key=lambda move: move.ahead, default=None)

    def _move_of(self, process_id: int) -> Move | None:
        place = self._places.get(process_id)
        if place is not None and place.is_moving:
            return Move(away=place.away, ahead=0)
        away = self._line.get(process_id)
        if away is None:
            return None
        line = [each for each, is_away in self._line.items() if is_away == away]
        return Move(away=away, ahead=self._count_moving(away=away) + line.index(process_id))

    def _count_moving(self, *, away: bool) -> int:
        return sum(place.is_moving and place.away == away for place in self._places.values())

    def take(self, event: ProcessCheckpointed) -> Job | None:
        """Take in that a process was saved or brought back, or could not be; return its job.

        None: the process has left meanwhile.
        """
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
            # It may be neither saved nor able to go on: treat it like a process that has just
            # attached.
            place.is_here, place.stays, place.problem = None, True, event.problem
            place.job.tell(event.now_ns, f"its memory stays on the gpu: {event.problem}")
            return
        place.is_here, place.problem = False, ""
        place.process.usage = self.seen(place.process.usage)
        forget_unseen(place.process)
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
        """Return which processes to save or to bring back now."""
        self.wake_at_ns = None
        for group in groups:
            for process_id in group.processes:
                place = self._places.get(process_id)
                if place is not None and not place.is_moving:
                    self._line_up(place, group, now_ns)
        return [*self._begin(away=False), *self._begin(away=True)]

    def _line_up(self, place: _Place, group: Group, now_ns: int) -> None:
        if place.stays and not group.paused:
            place.stays, place.problem = False, ""
        process_id, away = place.process.process_id, self._direction(place, group, now_ns)
        if away != self._line.get(process_id):
            self._line.pop(process_id, None)
            if away is not None:
                self._line[process_id] = away

    def _direction(self, place: _Place, group: Group, now_ns: int) -> bool | None:
        """Return True to save it, False to bring it back, None if it is where it should be."""
        if group.paused and (place.is_here is False or not place.stays):
            rests = group.drained and not group.open
            return True if rests and place.is_here is not False else None
        if place.is_here:
            return None
        if now_ns >= place.not_before_ns:
            return False
        self.wake_at_ns = min(place.not_before_ns, self.wake_at_ns or place.not_before_ns)
        return None

    def _begin(self, *, away: bool) -> Iterator[CheckpointProcess]:
        most = MOST_SAVES if away else MOST_RETURNS
        line = [process_id for process_id, is_away in self._line.items() if is_away == away]
        for process_id in line[: max(0, most - self._count_moving(away=away))]:
            del self._line[process_id]
            place = self._places[process_id]
            place.is_moving, place.away = True, away
            yield CheckpointProcess(process_id=process_id, away=away)

    def leave(self) -> dict[int, Job]:
        """Return the processes to bring back because the daemon ends, and their jobs."""
        return {
            process_id: place.job
            for process_id, place in self._places.items()
            if place.is_moving or not place.is_here
        }
