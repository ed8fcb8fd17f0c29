"""The facts about a group that decide where memory is to be; while they stay, so does the decision.

A group is reported on all the time, and nearly nothing of that matters for memory. So only the
group itself is looked at after a report, and its island (residency.py) only if one of these facts
has changed. Code there must not ask anything about a group that is not among these facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from tandemd.core.islands import Island
from tandemd.core.memory.releases import released_at_ns
from tandemd.core.model import Group

_memory_of = attrgetter(
    "device_bytes",
    "swappable_bytes",
    "swapped_bytes",
    "filed_bytes",
    "waits_for_memory",
    "swap_done",
    "swap_outcome",
    "swap_out_bytes",
    "swap_out_ns",
    "swap_in_bytes",
    "swap_in_ns",
)


class Grounds(NamedTuple):
    """The facts about one group; the default is that of a group that has no bearing on memory."""

    memory: tuple[object, ...] = ()  # what a review asks
    standing: tuple[object, ...] = ()  # what only a decision asks
    released_at_ns: int | None = None  # when it gives its memory up if it stays idle


def grounds_of(
    group: Group,
    island: Island,
    requests: tuple[int, ...],
    *,
    is_close: bool,
    is_timed: bool,
    now_ns: int,
) -> Grounds:
    """Return the facts as they are now.

    `is_close`: it matters who has the turn and who comes next. `is_timed`: since when a group has
    wanted nothing matters for groups in line, too.
    """
    at_ns = released_at_ns(group, island.options)
    is_released = at_ns is not None and now_ns >= at_ns
    memory = (is_released, *_memory_of_group(group), *requests)
    if not (is_close or is_released or group.paused):
        return Grounds(memory, (), at_ns)
    asks = (group.needs_memory, group.misfit_bytes, island.turns.holder is None and group.calls)
    if island.has_turn(group):  # its work comes and goes, which does not matter
        return Grounds(memory, (True, group.drained and not group.open, *asks), at_ns)
    rests = group.drained if not group.open else not (group.busy or group.wants)
    is_in_line = group.wants and not (group.dozing or group.is_closed)
    wanted_ns = group.last_wanted_ns if is_timed or not is_in_line else None
    return Grounds(memory, (False, rests, *asks, group.busy, wanted_ns), at_ns)


def _memory_of_group(group: Group) -> Iterator[object]:
    yield group.undrainable
    yield (group.steps, group.busy) if group.notice is not None else None
    for process in group.processes.values():
        yield _memory_of(process.usage), process.unheld_bytes, process.unseen_bytes
