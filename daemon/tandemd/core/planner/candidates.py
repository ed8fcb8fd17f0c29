"""Plans for sharing one GPU that are worth evaluating.

Few jobs are planned exhaustively. Of many jobs, each with an objective gets the smallest room that
suffices, or moves in with another where that saves room (best fit); all others share what is left,
in time or evenly in space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from math import comb

from tandemd.core.planner.plans import Part, Plan, Scene, Worker

MOST_EXHAUSTIVE = 2000  # plans; beyond that, best fit
FEW = 16  # jobs; beyond that, best fit does not try every spare size either,
SPARES = (0, 2, 8)  # but only to keep these numbers of groups


def has_all(scene: Scene) -> bool:
    """Tell whether `candidates` yields every plan there is, or other plans are not wanted."""
    groups, jobs = scene.gpu.groups, len(scene.workers)
    return not scene.gpu.can_divide or min(jobs, groups) < 2 or _count(scene) <= MOST_EXHAUSTIVE


def candidates(scene: Scene) -> Iterator[Plan]:
    """Yield plans worth evaluating: all of them if they are few. There is at least one.

    Sharing in time alone is among them unless a person fixed a part of the SMs; even then it is, if
    the fixed parts add up to more than there is.
    """
    names, groups = tuple(scene.workers), scene.gpu.groups
    in_time = (Part(groups, names),)
    if not scene.gpu.can_divide:
        yield in_time
        return
    fixed = any(w.groups not in (0, groups) for w in scene.workers.values())
    is_open = not (scene.gpu.keeps_sizes and fixed)
    if len(names) == 1 and not is_open:
        yield (Part(min(groups, scene.workers[names[0]].groups), names),)
        return
    if is_open:
        yield in_time
    found: Iterator[Plan] = iter(())
    if groups > 1 and len(names) > 1:
        found = _all(scene) if has_all(scene) else _fits(scene)
    first = next(found, None)
    if first is not None:
        yield first
        yield from found
    elif not is_open:
        yield in_time


def _all(scene: Scene) -> Iterator[Plan]:
    """Yield every division of the jobs into two or more parts, and of all groups among them."""
    names, groups = tuple(scene.workers), scene.gpu.groups
    divisions = _divisions(names, groups)
    if not scene.gpu.can_mix:
        divisions = iter([[(name,) for name in names]] if len(names) <= groups else [])
    for division in divisions:
        if len(division) > 1:
            for sizes in _sizes(division, scene):
                yield tuple(map(Part, sizes, division))


def _sizes(division: list[tuple[str, ...]], scene: Scene) -> Iterator[list[int]]:
    """Yield sizes for the parts, as fixed by a person; groups stay free only if all are fixed."""
    groups = scene.gpu.groups
    fixed = [{scene.workers[name].groups for name in members} - {0} for members in division]
    if any(len(said) > 1 for said in fixed):
        return
    if all(fixed):
        sizes = [max(said) for said in fixed]
        if sum(sizes) <= groups:
            yield sizes
        return
    for cuts in combinations(range(1, groups), len(division) - 1):
        sizes = [end - begin for begin, end in pairwise((0, *cuts, groups))]
        if all(size in said for size, said in zip(sizes, fixed, strict=True) if said):
            yield sizes


def _divisions(names: tuple[str, ...], most: int) -> Iterator[list[tuple[str, ...]]]:
    """Yield all set partitions into at most `most` parts."""
    if not names:
        yield []
        return
    first, rest = names[0], names[1:]
    for division in _divisions(rest, most):
        if len(division) < most:
            yield [(first,), *division]
        for i, members in enumerate(division):
            yield [*division[:i], (first, *members), *division[i + 1 :]]


def _count(scene: Scene) -> int:
    """Count the plans that divide the SMs if nobody fixed any sizes."""
    groups, jobs = scene.gpu.groups, len(scene.workers)
    of = _divided(jobs)
    parts = range(2, jobs + 1) if scene.gpu.can_mix else [jobs]
    return sum(of[count] * comb(groups - 1, count - 1) for count in parts)


def _divided(jobs: int) -> list[int]:
    """Return the number of ways to make 0, 1, 2... parts (Stirling numbers of the second kind)."""
    ways = [1]
    for _ in range(jobs):
        alone = [0, *ways]
        ways = [
            first + parts * more
            for parts, (first, more) in enumerate(zip(alone, [*ways, 0], strict=True))
        ]
    return ways


def _fits(scene: Scene) -> Iterator[Plan]:
    """Yield best fits that keep ever more groups for jobs without an objective, or to share less.

    Those jobs take turns on what is left, or each gets an equal part of it.
    """
    workers = scene.workers.values()
    needs = {w.name: _need(w, scene) for w in workers if w.slo_ns or w.groups}
    rest = tuple(name for name in scene.workers if name not in needs)
    groups = scene.gpu.groups
    spares = range(groups) if len(workers) <= FEW else SPARES
    for spare in (spare for spare in spares if spare < groups):
        plan = _fit(needs, scene, spare)
        if plan is None:
            continue
        if scene.gpu.can_mix or len(rest) < 2:
            yield plan
        if len(rest) > 1 and (scene.gpu.can_mix or len(rest) <= plan[-1].groups):
            yield (*plan[:-1], *_evenly(plan[-1]))


def _evenly(part: Part) -> Iterator[Part]:
    """Yield equal parts for its jobs: one each, or as many as there are groups."""
    count = min(len(part.members), part.groups)
    for number in range(count):
        groups = part.groups // count + (number < part.groups % count)
        yield Part(groups, part.members[number::count])


def _fit(needs: Mapping[str, int], scene: Scene, spare: int) -> Plan | None:
    """Return the fit of `needs`, the groups that each job with an objective needs, or None.

    None: there is not enough room.
    """
    parts: list[Part] = []
    for name in sorted(needs, key=lambda one: needs[one], reverse=True):
        room = scene.gpu.groups - spare - sum(part.groups for part in parts)
        parts = _house(name, needs[name], parts, room, scene)
    rest = tuple(name for name in scene.workers if name not in needs)
    left = scene.gpu.groups - sum(part.groups for part in parts)
    if left < 0 or (rest and left < 1):
        return None
    if rest:
        return (*parts, Part(left, rest))
    free = [p for p in parts if not any(scene.workers[name].groups for name in p.members)]
    if left and free:  # no other job is left to have them, so the largest part gets them
        i = parts.index(max(free, key=lambda part: part.groups))
        parts[i] = Part(parts[i].groups + left, parts[i].members)
    return tuple(parts)


def _house(name: str, need: int, parts: list[Part], room: int, scene: Scene) -> list[Part]:
    """Place a job in the smallest part where all objectives hold with it, or in one of its own.

    If there is no room for one of its own, it goes into the largest part that may be shared.
    """
    own = [*parts, Part(need, (name,))]
    if not scene.gpu.can_mix or scene.workers[name].groups:
        return own
    joined = []
    for i, part in sorted(enumerate(parts), key=lambda each: each[1].groups):
        if not any(scene.workers[member].groups for member in part.members):
            shared = Part(part.groups, (*part.members, name))
            joined.append([*parts[:i], shared, *parts[i + 1 :]])
            if _goes_well(shared, scene):
                return joined[-1]
    return own if need <= room or not joined else joined[-1]


def _need(worker: Worker, scene: Scene) -> int:
    """Return the fewest groups with which it keeps its objective alone; if none do, all."""
    if worker.groups:
        return worker.groups
    sizes = range(1, scene.gpu.groups)
    fits = (groups for groups in sizes if _goes_well(Part(groups, (worker.name,)), scene))
    return next(fits, scene.gpu.groups)


def _goes_well(part: Part, scene: Scene) -> bool:
    """Tell whether all objectives in the part are kept, without neighbours."""
    forecasts = scene.forecast(part, ())
    return not any(scene.misses(name, forecast) for name, forecast in forecasts)
