"""Explains how GPU time that a job shares with others is split."""

from __future__ import annotations

from collections.abc import Iterator

from tandemd.core.explain.pairs import partners_of
from tandemd.core.model import Group
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.demands import Demand, demand_of_group
from tandemd.core.turns.turns import Turns

MOST_NAMED = 3
BEGINNING = "gpu time that several jobs use at once is split"  # of such a line


def split_lines(
    scheduler: Scheduler, group: Group, ring: list[Group], turns: Turns
) -> Iterator[str]:
    """A line per GPU where others' kernels run beside its own; `ring`: its rivals for turns."""
    options = scheduler.options
    beside = list(_beside(scheduler, group, ring, turns))
    for gpu in sorted({process.gpu for process in group.processes.values()}):
        others = [o for o in beside if any(p.gpu == gpu for p in o.processes.values())]
        if not others or not options.overlaps([gpu]):
            continue
        found = [demand_of_group(one, gpu, options) for one in (group, *others)]
        if None in found:
            yield f"{BEGINNING} evenly, an estimate: how many SMs the gpu has is not known"
            continue
        names = ("it", *(other.title for other in others))
        told = [_told(name, one) for name, one in zip(names, found, strict=True) if one]
        rest = len(told) - 1 - MOST_NAMED
        more = f", and {rest} more" if rest > 0 else ""
        yield f"{BEGINNING} by SMs, an estimate: {', '.join(told[: 1 + MOST_NAMED])}{more}"


def _told(name: str, demand: Demand) -> str:
    return f"{demand.sms} for {name} ({demand.source.value})"


def _beside(scheduler: Scheduler, group: Group, ring: list[Group], turns: Turns) -> Iterator[Group]:
    """Groups whose kernels may run at the same time as its own now."""
    partners, takes_turns = partners_of(group, ring, turns), _takes_turns(scheduler, group)
    for other in scheduler.groups.values():
        if other is group or not other.processes:
            continue
        is_apart = other in ring and takes_turns and _takes_turns(scheduler, other)
        if other in partners or not is_apart:
            yield other


def _takes_turns(scheduler: Scheduler, group: Group) -> bool:
    return not (group.undrainable or scheduler.policy.always_open(group))
