"""What each process with movable memory was told about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandemd.core.memory.homes import UNIT, Home, in_units
from tandemd.core.model import NO_LIMIT, Job, Process


@dataclass(slots=True, kw_only=True)
class Place:
    """The record of one process."""

    process: Process
    job: Job
    home: Home
    order: int = 0
    target_bytes: int = NO_LIMIT  # of its newest order
    reported: bool = True  # the outcome of that order was taken in
    was_suspended: bool = False  # all of it went to the host, and the story was told so
    told_bytes: int = 0  # host memory it lacked when that was last told
    stays_because: str = ""  # why memory that should go is still there, as last told
    fixed_until_ns: int = 0  # moving it failed: it stays where it is until then

    @property
    def resident_bytes(self) -> int:
        """Movable memory that is on the GPU."""
        return self.process.usage.swappable_bytes - self.process.usage.swapped_bytes

    @property
    def is_moving(self) -> bool:
        """True while its newest order has not ended."""
        return self.order != self.process.usage.swap_done

    @property
    def rests_on_host(self) -> bool:
        """True if it has memory on the host that nobody has asked back."""
        usage = self.process.usage
        is_out = usage.swapped_bytes > usage.filed_bytes and self.target_bytes != NO_LIMIT
        return is_out and not self.is_moving and self.process.takes_files

    def tell_it_stays(self, now_ns: int, why: str) -> None:
        """Tell the story why memory that should go stays, and keep the reason for later queries."""
        self.stays_because = why
        self.job.tell(now_ns, f"its memory stays on the gpu: {why}")

    @property
    def is_whole(self) -> bool:
        """True if all of it is on the GPU, and is to be there."""
        is_wanted = self.target_bytes == NO_LIMIT
        return is_wanted and not self.is_moving and self.process.usage.swapped_bytes == 0


def shared_out(places: list[Place], target_bytes: int) -> Iterator[tuple[Place, int]]:
    """Split a group's target among its processes, in proportion to what they have."""
    total_bytes = sum(place.process.usage.swappable_bytes for place in places)
    for place in places:
        if target_bytes == NO_LIMIT or total_bytes == 0:
            yield place, NO_LIMIT
        else:
            own_bytes = place.process.usage.swappable_bytes
            yield place, target_bytes * own_bytes // total_bytes // UNIT * UNIT


def minimum_bytes(places: list[Place]) -> int:
    """Return how much of a group's movable memory never moves: the minima of its jobs."""
    total_bytes = 0
    for job in {place.job.job_id: place.job for place in places}.values():
        usages = [place.process.usage for place in places if place.job is job]
        movable_bytes = sum(usage.swappable_bytes for usage in usages)
        fixed_bytes = sum(usage.device_bytes for usage in usages) - movable_bytes
        promised_bytes = job.spec.memory_min_bytes if job.is_minimum_kept else 0
        total_bytes += min(movable_bytes, in_units(max(0, promised_bytes - fixed_bytes)))
    return total_bytes
