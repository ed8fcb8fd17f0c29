"""Time, space or both: how a set of jobs had best share one GPU.

Of the plans there are (plans.py) the one is best with which fewer objectives are missed. Of those
the one with which fewer of the jobs about which it guesses get less than their share by weight
(the sharing incentive; Ghodsi et al., NSDI 2011): what a guess promises is no reason to give them
little. Then the one with most progress, or that has nearly as much, by `NEAR`, and is the fairest:
where work scales evenly every division of the SMs promises the same. Few jobs are planned
exhaustively, more of them by best fit: each objective gets the smallest room that does, or moves in
with another one where that saves room, and all others share what is left.

`Planner` is for who goes by plans (divisions.py): it goes by another one at once where jobs came or
went or what was said of one is another, or where it is known at last how one scales, and else only
where it was clearly better in `WINDOWS` looks in a row: keeps more objectives by `BAND` or more, or
promises more progress by `BETTER`. To be fairer is no such reason: what is measured wavers.
Forecasts that are wrong stay wrong: who shares with whom, once left, is not gone back to before the
load is another, and sizes that the tuner changed meanwhile are the tuner's. So while load is
constant changes come to an end. The load is another when under a plan that was in force before
requests come at another rate: under another plan that may be the plan's doing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import comb, inf

from tandemd.core.latency import LOAD_CHANGE, is_another_load
from tandemd.core.plans import Part, Plan, Scene, Valued, Worker, objectives
from tandemd.core.search import Search

MOST_EXHAUSTIVE = 2000  # plans; of more, best fit
FEW = 16  # jobs; of more, best fit does not try everything either,
SPARES = (0, 2, 8)  # but to keep so many groups
BETTER = 0.07  # of the progress that is
# Of the progress, to be fair: less than `BETTER`, or a plan that is fair would be left for another
# one that has the progress it gave up.
NEAR = 0.05
BAND = 0.1  # of an objective: what is foretold so near to it may as well miss it
WINDOWS = 2
_DIVISIONS = (1, 1, 2, 5, 15, 52, 203)  # of so many jobs (Bell numbers)


def best(scene: Scene) -> Valued:
    """The best plan; there is at least one job."""
    search = Search.through(scene)
    return _choose(list(map(search.value, candidates(search))))


def alternatives(scene: Scene) -> list[Valued]:
    """The best plan of each kind, best first; there is at least one job."""
    search, by_kind = Search.through(scene), defaultdict[str, list[Valued]](list)
    for valued in map(search.value, candidates(search)):
        by_kind[valued.kind].append(valued)
    first = _choose([valued for found in by_kind.values() for valued in found])
    others = (_choose(found) for kind, found in by_kind.items() if kind != first.kind)
    return [first, *sorted(others, key=lambda valued: valued.rank, reverse=True)]


def _choose(found: Sequence[Valued]) -> Valued:
    """The fairest of those that are nearly the best."""
    missed, slighted, most, _ = max(valued.rank for valued in found)
    alike = (valued for valued in found if valued.rank[:2] == (missed, slighted))
    near = (valued for valued in alike if valued.progress >= (1 - NEAR) * most)
    return max(near, key=lambda valued: (valued.shares, valued.rank))


def candidates(scene: Scene) -> Iterator[Plan]:
    """Plans worth a look: all if they are few. There is one at least.

    To share nothing but time is among them, unless a person fixed a part of the SMs; and then, too,
    where such parts are more than there is.
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
        found = _all(scene) if _count(len(names), groups) <= MOST_EXHAUSTIVE else _fits(scene)
    first = next(found, None)
    if first is not None:
        yield first
        yield from found
    elif not is_open:
        yield in_time


def _all(scene: Scene) -> Iterator[Plan]:
    """Every division of the jobs into two parts or more, and of all groups between them."""
    for division in _divisions(tuple(scene.workers)):
        if not 2 <= len(division) <= scene.gpu.groups:
            continue
        if not scene.gpu.can_mix and any(len(members) > 1 for members in division):
            continue
        for sizes in _sizes(division, scene):
            yield tuple(map(Part, sizes, division))


def _sizes(division: list[tuple[str, ...]], scene: Scene) -> Iterator[list[int]]:
    """Of each part, as a person fixed them; groups are left over only where all are fixed."""
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


def _divisions(names: tuple[str, ...]) -> Iterator[list[tuple[str, ...]]]:
    """All set partitions."""
    if not names:
        yield []
        return
    first, rest = names[0], names[1:]
    for division in _divisions(rest):
        yield [(first,), *division]
        for i, members in enumerate(division):
            yield [*division[:i], (first, *members), *division[i + 1 :]]


def _count(jobs: int, groups: int) -> float:
    """No fewer plans than `_all` has."""
    if jobs >= len(_DIVISIONS):
        return inf
    return _DIVISIONS[jobs] * max(comb(groups - 1, parts - 1) for parts in range(2, jobs + 1))


def _fits(scene: Scene) -> Iterator[Plan]:
    """Best fit, with more and more groups kept for those without an objective, or to share less."""
    workers = scene.workers.values()
    needs = {w.name: _need(w, scene) for w in workers if w.slo_ns or w.groups}
    groups = scene.gpu.groups
    spares = range(groups) if len(workers) <= FEW else SPARES
    for spare in (spare for spare in spares if spare < groups):
        plan = _fit(needs, scene, spare)
        if plan is not None:
            yield plan


def _fit(needs: Mapping[str, int], scene: Scene, spare: int) -> Plan | None:
    """`needs`: groups of each job that has an objective. None: there is not so much room."""
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
    if left and free:  # nobody is left to have it but who has most
        i = parts.index(max(free, key=lambda part: part.groups))
        parts[i] = Part(parts[i].groups + left, parts[i].members)
    return tuple(parts)


def _house(name: str, need: int, parts: list[Part], room: int, scene: Scene) -> list[Part]:
    """Into the smallest part where all goes well with it; else a part of its own, if there is room.

    Else into the largest part that may be shared.
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
    """The fewest groups with which it keeps its objective by itself, if any do."""
    if worker.groups:
        return worker.groups
    sizes = range(1, scene.gpu.groups)
    fits = (groups for groups in sizes if _goes_well(Part(groups, (worker.name,)), scene))
    return next(fits, scene.gpu.groups)


def _goes_well(part: Part, scene: Scene) -> bool:
    """All its objectives are kept, if nobody is beside it."""
    forecasts = scene.forecast(part, ())
    return not any(scene.misses(name, forecast) for name, forecast in forecasts)


@dataclass(slots=True)
class Planner:
    """Holds on to a plan until another one is better for some time. Belongs to one thread."""

    current: Valued | None = None
    band: float = BAND
    _said: object = None  # of all jobs, when the plan was made
    _better: int = 0  # looks in a row
    _left: set[object] = field(default_factory=set)  # plans, and who shared with whom
    _seen: dict[tuple[frozenset[Part], str], Worker] = field(default_factory=dict)  # under a plan

    def forget(self) -> None:
        """Go by the next plan that is found, whatever it is: `current` is not in force any more."""
        self._said = None

    def look(self, scene: Scene) -> str:
        """Choose `current` anew; why it is another plan than before, empty: it is not.

        Call it when jobs came or went, and once a window.
        """
        return self.take(scene, best(scene) if scene.workers else None)

    def take(self, scene: Scene, found: Valued | None, in_force: Plan = ()) -> str:
        """The same, where the best plan of the scene was found elsewhere; None: nobody is there.

        `in_force`: `current` as the tuner has sized it; empty: it has not.
        """
        said, before = _said(scene), self.current
        if found is None or before is None or said != self._said:
            self.current, self._said, self._better = found, said, 0
            self._begin_anew()
            return "other jobs are there, or more is said or known of one" if found else ""
        in_force = in_force or before.plan
        self._note_load(scene, in_force)
        now = self.current = scene.value(before.plan)
        is_better = self._is_open(found.plan, in_force) and _is_clearly_better(
            found, now, scene, self.band
        )
        self._better = self._better + 1 if is_better else 0
        if self._better < WINDOWS:
            return ""
        self.current, self._better = found, 0
        is_moved = _sharing(found.plan) != _sharing(now.plan)
        self._left.add(_sharing(now.plan) if is_moved else frozenset(now.plan))
        if found.missed < now.missed:
            return f"it is to miss {objectives(found.missed)} and not {now.missed}"
        return f"it promises {found.progress:.2f} of progress by weight and not {now.progress:.2f}"

    def _is_open(self, plan: Plan, in_force: Plan) -> bool:
        assert self.current is not None
        is_sized = frozenset(in_force) != frozenset(self.current.plan)
        if is_sized and _sharing(plan) == _sharing(in_force):
            return False
        return not {_sharing(plan), frozenset(plan)} & self._left

    def _note_load(self, scene: Scene, in_force: Plan) -> None:
        for worker in scene.workers.values():
            known = self._seen.setdefault((frozenset(in_force), worker.name), worker)
            if _is_another_load(worker, known, scene.gpu.sms_of_group):
                self._begin_anew()
                return

    def _begin_anew(self) -> None:
        self._left.clear()
        self._seen.clear()


def _is_another_load(worker: Worker, known: Worker, fewest_sms: int) -> bool:
    """Of the same job."""
    if (worker.rate_count, known.rate_count) != (0, 0):
        if not (worker.rate_count and known.rate_count):
            return True
        spans = [one.rate_count / one.rate for one in (worker, known)]
        if is_another_load(worker.rate_count, spans[0], known.rate_count, spans[1]):
            return True
    takes = ((worker.solo_ns, known.solo_ns), (worker.at(fewest_sms), known.at(fewest_sms)))
    return any(abs(now - was) > LOAD_CHANGE * was for now, was in takes)


def _sharing(plan: Plan) -> frozenset[frozenset[str]]:
    """Who shares with whom, on however many groups."""
    return frozenset(frozenset(part.members) for part in plan)


def _said(scene: Scene) -> frozenset[tuple[object, ...]]:
    """What plans depend on that is not measured, and which jobs they guess about."""
    gpu, workers = scene.gpu, scene.workers.values()
    of_gpu = (gpu.groups, gpu.sms_of_group, gpu.can_mix, gpu.can_divide, gpu.keeps_sizes)
    return frozenset(
        (w.name, w.weight, w.slo_ns, w.groups, w.share, w.is_known, *of_gpu) for w in workers
    )


def _is_clearly_better(found: Valued, now: Valued, scene: Scene, band: float) -> bool:
    """What is foretold near an objective is not sure: it moves with what is measured."""
    gained = lost = 0
    for name, before in now.forecasts.items():
        slo_ns, p99_ns = scene.workers[name].slo_ns, found.forecasts[name].p99_ns
        is_sure = p99_ns <= (1 - band) * slo_ns
        if scene.misses(name, before):
            gained += is_sure
        elif slo_ns:
            lost += not is_sure and p99_ns > before.p99_ns
    if gained != lost:
        return gained > lost
    return found.progress > (1 + BETTER) * now.progress
