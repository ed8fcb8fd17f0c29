"""Improves good plans step by step: hill climbing that takes the first step that helps.

A step moves one group of SMs to another part, moves a job to another part or one of its own, lets
two jobs change places, or merges two parts. What a person fixed stays. A climb ends at a plan that
no such step improves, or when its limit of looks is used up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, permutations, product

from tandemd.core.planner.plans import Part, Plan, Scene, Valued

# Divided by the square of the number of jobs, to which the cost of a look is proportional: 0.1 s in
# all.
MOST_LOOKS = 25_000


def climb(scene: Scene, starts: Sequence[Valued]) -> Iterator[Valued]:
    """Yield all plans looked at while climbing from each start, which share the limit evenly."""
    most = MOST_LOOKS // len(scene.workers) ** 2 // max(1, len(starts))
    seen = {_same(start.plan) for start in starts}
    for start in starts:
        yield from _climb(scene, start, most, seen)


def _climb(scene: Scene, here: Valued, most: int, seen: set[object]) -> Iterator[Valued]:
    goes_on = True
    while goes_on:
        goes_on = False
        for plan in _steps(scene, here.plan):
            if _same(plan) in seen:
                continue
            if not most:
                return
            most -= 1
            seen.add(_same(plan))
            valued = scene.value(plan)
            yield valued
            if valued.rank > here.rank:
                here, goes_on = valued, True
                break


def _same(plan: Plan) -> object:
    return frozenset((part.groups, frozenset(part.members)) for part in plan)


def _steps(scene: Scene, plan: Plan) -> Iterator[Plan]:
    workers = scene.workers
    free = [i for i, part in enumerate(plan) if not any(workers[n].groups for n in part.members)]
    yield from _sizes(plan, free)
    if scene.gpu.can_mix:
        pairs = list(combinations(free, 2))
        yield from (_joined(scene, plan, *pair) for pair in pairs)
        for at in free:
            yield from _leaving(scene, plan, at, free)
        for pair in pairs:
            yield from _swaps(scene, plan, *pair)


def _sizes(plan: Plan, free: list[int]) -> Iterator[Plan]:
    """Yield the plans in which one part gives one group to another."""
    for giver, taker in permutations(free, 2):
        gives, takes = plan[giver], plan[taker]
        if gives.groups > 1:
            less, more = (
                Part(gives.groups - 1, gives.members),
                Part(takes.groups + 1, takes.members),
            )
            yield _with(plan, {giver: less, taker: more})


def _joined(scene: Scene, plan: Plan, one: int, other: int) -> Plan:
    """Return the plan with two parts merged."""
    groups = plan[one].groups + plan[other].groups
    both = _part(scene, groups, (*plan[one].members, *plan[other].members))
    return _with(plan, {one: None, other: both})


def _leaving(scene: Scene, plan: Plan, at: int, free: list[int]) -> Iterator[Plan]:
    """Yield plans in which a job leaves a shared part, for another or for some groups alone."""
    part = plan[at]
    for name in part.members if part.members[1:] else ():
        rest = tuple(member for member in part.members if member != name)
        for to in (to for to in free if to != at):
            into = _part(scene, plan[to].groups, (*plan[to].members, name))
            yield _with(plan, {at: Part(part.groups, rest), to: into})
        for own in sorted({1, part.groups // 2}) if part.groups > 1 else ():
            yield (*_with(plan, {at: Part(part.groups - own, rest)}), Part(own, (name,)))


def _swaps(scene: Scene, plan: Plan, one: int, other: int) -> Iterator[Plan]:
    """Yield plans in which a job of each of two parts takes the other's place."""
    for first, second in product(plan[one].members, plan[other].members):
        changed = {
            at: _part(scene, plan[at].groups, ({*plan[at].members} - {goes}) | {comes})
            for at, goes, comes in ((one, first, second), (other, second, first))
        }
        yield _with(plan, changed)


def _part(scene: Scene, groups: int, members: Collection[str]) -> Part:
    """Return a part with its members in the canonical order."""
    return Part(groups, tuple(name for name in scene.workers if name in members))


def _with(plan: Plan, changed: Mapping[int, Part | None]) -> Plan:
    parts = (changed.get(i, part) for i, part in enumerate(plan))
    return tuple(part for part in parts if part is not None)
