"""What the daemon sees of the processes: samples all at once, and charges GPU time.

It follows the native poller (csrc/core/daemon/charge.h): the interval between two looks is charged
to the processes that were busy at the first. If one group was, all of it is the group's own; if
several were, it is split evenly, as an estimate, because only mode `time` is modelled, where no
process counts for only some of the SMs (core/space/demands.py). Inside a group its busy processes
split the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tandemd.core.model import Usage
from tandemd.sim.process import Process

PERIOD_NS = 1_000_000  # Poller::kPeriodNs, and VIRTUAL_ROUND_NS of the daemon's loop


@dataclass(slots=True, kw_only=True)
class Watched:
    """One process."""

    process: Process
    group: int  # whose GPU time it is
    exclusive_ns: int = 0
    shared_ns: int = 0
    was_busy: bool = False  # at the last look
    signs: tuple[object, ...] = field(init=False)  # at the last look
    told: Usage = field(init=False)  # what the core knows

    def __post_init__(self) -> None:
        self.signs = self.process.signs
        self.told = Usage(process_id=self.process.process_id)

    @property
    def usage(self) -> Usage:
        """Return its present usage."""
        return self.process.usage(exclusive_ns=self.exclusive_ns, shared_ns=self.shared_ns)


class Poller:
    """Samples on request."""

    def __init__(self) -> None:
        self.is_active = False  # a process was busy or waited at the last look
        self._watched: dict[int, Watched] = {}
        self._looked_ns = 0

    def add(self, process: Process) -> None:
        """Watch a process; until the core names its group, its time is its own."""
        number = process.process_id
        self._watched[number] = Watched(process=process, group=-number)

    def regroup(self, process_id: int, group: int) -> None:
        """Charge its time to this group from now on."""
        self._watched[process_id].group = group

    def remove(self, process_id: int) -> Usage:
        """Stop watching a process; returns its last usage."""
        return self._watched.pop(process_id).usage

    def charged_ns(self, process_id: int) -> int:
        """Return the GPU time charged to it so far."""
        watched = self._watched[process_id]
        return watched.exclusive_ns + watched.shared_ns

    def look(self, now_ns: int) -> bool:
        """Charge the time since the last look; returns whether there is news that cannot wait."""
        if self.is_active:
            self._charge(now_ns - self._looked_ns)
        self._looked_ns = now_ns
        is_notable = self.is_active = False
        for watched in self._watched.values():
            process, before = watched.process, watched.signs
            watched.was_busy, watched.signs = process.is_busy, process.signs
            is_notable |= before != watched.signs
            self.is_active |= process.is_busy or process.is_waiting
        return is_notable

    def changed(self) -> tuple[Usage, ...]:
        """Return the usages that differ from those reported last."""
        return tuple(self._take_changed())

    def _take_changed(self) -> Iterator[Usage]:
        for watched in self._watched.values():
            usage = watched.usage
            if usage != watched.told:
                watched.told = usage
                yield usage

    def _charge(self, interval_ns: int) -> None:
        groups: dict[int, list[Watched]] = {}
        for watched in sorted(self._watched.values(), key=lambda one: one.group):
            if watched.was_busy:
                groups.setdefault(watched.group, []).append(watched)
        for members, of_group_ns in zip(
            groups.values(), _parts(interval_ns, len(groups)), strict=True
        ):
            for watched, part_ns in zip(members, _parts(of_group_ns, len(members)), strict=True):
                if len(groups) == 1:
                    watched.exclusive_ns += part_ns
                else:
                    watched.shared_ns += part_ns


def _parts(total: int, count: int) -> list[int]:
    """Split into nearly equal parts; the remainder goes to the first ones."""
    return [total // count + (number < total % count) for number in range(count)]
