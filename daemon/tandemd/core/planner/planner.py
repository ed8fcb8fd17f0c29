"""Time, space or both: how a set of jobs had best share one GPU.

Of the plans there are (plans.py) the one is best with which fewer objectives are missed. Of those
the one with which fewer of the jobs about which it guesses get less than their share by weight
(the sharing incentive; Ghodsi et al., NSDI 2011): what a guess promises is no reason to give them
little. Then the one with most progress, or that has nearly as much, by `NEAR`, and is the fairest:
where work scales evenly every division of the SMs promises the same. Few jobs are planned
exhaustively (candidates.py); of more jobs some plans are tried, and then bettered step by step
(climb.py).

`Planner` is for who goes by plans (divisions.py): it goes by another one at once where jobs came or
went or what was said of one is another, or where it is known at last how one scales, and else only
where it was clearly better in `WINDOWS` looks in a row: keeps more objectives by `BAND` or more, or
promises more progress by `BETTER`. To be fairer is no such reason: what is measured wavers. Nor is
an objective that is missed as foretold, and kept as measured: forecasts take turns and waits at
their longest, all at once.
Forecasts that are wrong stay wrong: who shares with whom, once left, is not gone back to before the
load is another, and sizes that the tuner changed meanwhile are the tuner's. So while load is
constant changes come to an end. The load is another when under a plan that was in force before
requests come at another rate: under another plan that may be the plan's doing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tandemd.core.planner.candidates import candidates, has_all
from tandemd.core.planner.climb import climb
from tandemd.core.planner.plans import Part, Plan, Scene, Valued, Worker, objectives
from tandemd.core.planner.search import Search
from tandemd.core.tuner.latency import LOAD_CHANGE, is_another_load

BETTER = 0.07  # of the progress that is
# Of the progress, to be fair: less than `BETTER`, or a plan that is fair would be left for another
# one that has the progress it gave up.
NEAR = 0.05
BAND = 0.1  # of an objective: what is foretold so near to it may as well miss it
WINDOWS = 2


def best(scene: Scene) -> Valued:
    """The best plan; there is at least one job."""
    return _choose(_tried(scene))


def alternatives(scene: Scene) -> list[Valued]:
    """The best plan of each kind, best first; there is at least one job."""
    tried = _tried(scene)
    first = _choose(tried)
    others = (_choose(found) for kind, found in _by_kind(tried).items() if kind != first.kind)
    return [first, *sorted(others, key=lambda valued: valued.rank, reverse=True)]


def _tried(scene: Scene) -> list[Valued]:
    """All plans if they are few; else some, and what is got from the best of each kind of them."""
    search = Search.through(scene)
    tried = list(map(search.value, candidates(search)))
    if not has_all(search):
        starts = [_choose(found) for found in _by_kind(tried).values()]
        tried += climb(search, sorted(starts, key=lambda valued: valued.rank, reverse=True))
    return tried


def _by_kind(tried: Sequence[Valued]) -> dict[str, list[Valued]]:
    by_kind = defaultdict[str, list[Valued]](list)
    for valued in tried:
        by_kind[valued.kind].append(valued)
    return by_kind


def _choose(found: Sequence[Valued]) -> Valued:
    """The fairest of those that are nearly the best."""
    missed, slighted, most, _ = max(valued.rank for valued in found)
    alike = (valued for valued in found if valued.rank[:2] == (missed, slighted))
    near = (valued for valued in alike if valued.progress >= (1 - NEAR) * most)
    return max(near, key=lambda valued: (valued.shares, valued.rank))


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

    def take(
        self,
        scene: Scene,
        found: Valued | None,
        in_force: Plan = (),
        *,
        kept: Collection[str] = (),
    ) -> str:
        """The same, where the best plan of the scene was found elsewhere; None: nobody is there.

        `in_force`: `current` as the tuner has sized it; empty: it has not. `kept`: jobs of which
        is measured that they keep their objectives under it.
        """
        said, before = _said(scene), self.current
        if found is None or before is None or said != self._said:
            self.current, self._said, self._better = found, said, 0
            self._begin_anew()
            return "other jobs are there, or more is said or known of one" if found else ""
        in_force = in_force or before.plan
        self._note_load(scene, in_force)
        self.current, now = scene.value(before.plan), scene.value(in_force)
        # The tuner gives up progress for requests that take longer than foretold: no plan is better
        # for that alone.
        is_better = self._is_open(found.plan, in_force) and all(
            _is_clearly_better(found, one, scene, self.band, kept) for one in (self.current, now)
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


def _is_clearly_better(
    found: Valued, now: Valued, scene: Scene, band: float, kept: Collection[str]
) -> bool:
    """What is foretold near an objective is not sure: it moves with what is measured.

    Nor does what is within the doubt of how large requests are tell that one is missed.
    """
    gained = lost = 0
    for name, before in now.forecasts.items():
        slo_ns, doubt = scene.workers[name].slo_ns, scene.workers[name].sizes.doubt
        p99_ns = found.forecasts[name].p99_ns
        is_sure = p99_ns <= (1 - max(band, doubt)) * slo_ns
        if slo_ns and name not in kept and before.p99_ns > (1 + doubt) * slo_ns:
            gained += is_sure
        elif slo_ns:
            lost += not is_sure and p99_ns > before.p99_ns
    if gained != lost:
        return gained > lost
    return found.progress > (1 + BETTER) * now.progress
