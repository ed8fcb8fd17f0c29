"""What the daemon sees of the processes: a look at all of them at once, and whom GPU time is of.

As the native poller does it (csrc/core/daemon/charge.h): the interval between two looks is charged
to those that were busy at the first of them. While one group was, the whole is its own; while
several were, it is split evenly, as an estimate: only mode `time` is modelled, where nobody counts
for some of the SMs (core/space/demands.py). Inside a group its busy processes split that.
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
    was_busy: bool = False  # in the last look
    signs: tuple[object, ...] = field(init=False)  # then
    told: Usage = field(init=False)  # what the core knows

    def __post_init__(self) -> None:
        self.signs = self.process.signs
        self.told = Usage(process_id=self.process.process_id)

    @property
    def usage(self) -> Usage:
        """What is so now."""
        return self.process.usage(exclusive_ns=self.exclusive_ns, shared_ns=self.shared_ns)


class Poller:
    """Looks when it is told to."""

    def __init__(self) -> None:
        self.is_active = False  # somebody was busy or waited: time passes for someone
        self._watched: dict[int, Watched] = {}
        self._looked_ns = 0

    def add(self, process: Process) -> None:
        """Watch it from now on; until the core says whose its time is, that is its own."""
        number = process.process_id
        self._watched[number] = Watched(process=process, group=-number)

    def regroup(self, process_id: int, group: int) -> None:
        """From now on its time is that of the group."""
        self._watched[process_id].group = group

    def remove(self, process_id: int) -> Usage:
        """A last look."""
        return self._watched.pop(process_id).usage

    def charged_ns(self, process_id: int) -> int:
        """GPU time that was charged to it so far."""
        watched = self._watched[process_id]
        return watched.exclusive_ns + watched.shared_ns

    def look(self, now_ns: int) -> bool:
        """Charge the time since the last look; whether there is news that cannot wait."""
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
        """Of those that are not as they were when they were told last."""
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
    """Nearly equal; the remainder goes to the first ones."""
    return [total // count + (number < total % count) for number in range(count)]
