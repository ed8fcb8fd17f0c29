"""Whose memory is on the GPU: a paused job's goes to the host, a resumed one's comes back.

Suspend and resume as in Gandiva (OSDI'18): a job is stopped first, and only when nothing of it is
on the GPU any more is its memory copied and given to others. Only jobs that may be moved
(`swappable`) are. The host's room is promised before anything moves: a process that has been given
some keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tandemd.core.events import MoveMemory
from tandemd.core.model import NO_LIMIT, Group, Job, Process, SwapOutcome

MIB = 1 << 20
FAILURES = {
    SwapOutcome.NO_HOST_ROOM: "the host memory it was given does not hold it in one piece",
    SwapOutcome.NOT_DRAINED: "its work on the gpu does not end",
    SwapOutcome.FAILED: "a copy failed",
}


@dataclass(slots=True, kw_only=True)
class Place:
    """What a process that may be moved was told about its memory."""

    process: Process
    job: Job
    pool_bytes: int = 0  # of the host, its for as long as it lives
    order: int = 0
    out: bool = False
    reported: bool = True  # how the order ended was told


class Residency:
    """Which processes were told to move their memory. Pure; belongs to the scheduler."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}  # process; empty costs nothing

    @property
    def pool_bytes(self) -> int:
        """Host memory that was given to processes."""
        return sum(place.pool_bytes for place in self._places.values())

    def watch(self, process: Process, job: Job) -> None:
        """The process attached."""
        if job.spec.swappable:
            self._places[process.process_id] = Place(process=process, job=job)

    def forget(self, process_id: int) -> None:
        """The process is gone, and its host memory with it."""
        self._places.pop(process_id, None)

    def decide(
        self, group_of: Callable[[Job], Group | None], *, host_limit_bytes: int, now_ns: int
    ) -> list[MoveMemory]:
        """What has to move now; says so in the jobs' stories."""
        moves = []
        for place in self._places.values():
            _report(place, now_ns)
            group = group_of(place.job)
            if group is None:
                continue
            move = None
            if group.paused and group.drained and not place.out:
                move = self._move_out(place, host_limit_bytes, now_ns)
            elif not group.paused and place.out:
                move = _order(place, NO_LIMIT, pool_bytes=0)
            if move is not None:
                moves.append(move)
        return moves

    def _move_out(self, place: Place, host_limit_bytes: int, now_ns: int) -> MoveMemory | None:
        needed = place.process.usage.swappable_bytes
        if needed == 0:
            return None
        more = max(0, needed - place.pool_bytes)
        left = max(0, host_limit_bytes - self.pool_bytes)
        if more > left:
            place.job.tell(
                now_ns,
                f"its memory stays on the gpu: {more // MIB} MiB of the host are needed for it, "
                f"and {left // MIB} MiB are left of the {host_limit_bytes // MIB} MiB that "
                "host_limit allows",
            )
            return None
        place.pool_bytes += more
        return _order(place, 0, pool_bytes=more)


def _order(place: Place, target_bytes: int, *, pool_bytes: int) -> MoveMemory:
    place.order += 1
    place.out = target_bytes == 0
    place.reported = False
    return MoveMemory(
        process_id=place.process.process_id,
        order=place.order,
        target_bytes=target_bytes,
        pool_bytes=pool_bytes,
    )


def _report(place: Place, now_ns: int) -> None:
    usage = place.process.usage
    if place.reported or usage.swap_done != place.order:
        return
    place.reported = True
    if (why := FAILURES.get(usage.swap_outcome)) is not None:
        place.job.tell(now_ns, f"its memory stays on the gpu: {why}")
    elif place.out:
        place.job.tell(now_ns, f"{usage.swapped_bytes // MIB} MiB of its memory are on the host")
    else:
        place.job.tell(now_ns, "its memory is back on the gpu")
