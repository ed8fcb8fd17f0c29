"""Time, space or both: how a set of jobs had best share one GPU.

The best plan (plans.py) is the one that misses the fewest objectives. Among equals, it is the one
that gives the fewest of the jobs it guesses about less than their share by weight (the sharing
incentive; Ghodsi et al., NSDI 2011): a guess is no reason to give a job little. Then the most
progress wins, or, of plans with nearly as much (`NEAR`), the fairest: if work scales evenly, every
division of the SMs promises the same progress. Few jobs are planned exhaustively (candidates.py);
of more jobs some plans are tried and then improved step by step (climb.py).

`Planner` serves callers that apply plans (divisions.py). It changes to another plan at once when
jobs come or go, when a job's settings change, or when it becomes known how one scales. Otherwise it
changes only if the other plan was clearly better in `WINDOWS` looks in a row: it keeps more
objectives, each by `BAND` or more, or promises more progress by `BETTER`. Being fairer is no
reason, because measurements waver. Nor is an objective that is missed by forecast but kept as
measured: forecasts assume the longest turn and the longest wait at once.

Wrong forecasts stay wrong. So a grouping of jobs that was left is not returned to until the load
changes, and sizes that the tuner changed meanwhile stay the tuner's. Changes therefore come to an
end while the load is constant. The load has changed if, under a plan that was in force before,
requests come at another rate or iterations take another time; under a new plan, the plan itself may
be the cause.
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

BETTER = 0.07  # relative to the current progress
# Progress given up for fairness. It is less than `BETTER`, or a fair plan would be left for another
# that has the progress it gave up.
NEAR = 0.05
BAND = 0.1  # of an objective: a forecast this close to it may as well miss it
WINDOWS = 2


def best(scene: Scene) -> Valued:
    """Return the best plan; there must be at least one job."""
    return _choose(_tried(scene))


def alternatives(scene: Scene) -> list[Valued]:
    """Return the best plan of each kind, best first; there must be at least one job."""
    tried = _tried(scene)
    first = _choose(tried)
    others = (_choose(found) for kind, found in _by_kind(tried).items() if kind != first.kind)
    return [first, *sorted(others, key=lambda valued: valued.rank, reverse=True)]


def _tried(scene: Scene) -> list[Valued]:
    """Return all plans if they are few; else a selection, and what climbing makes of the best."""
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
    """Return the fairest of the plans that are nearly the best."""
    missed, slighted, most, _ = max(valued.rank for valued in found)
    alike = (valued for valued in found if valued.rank[:2] == (missed, slighted))
    near = (valued for valued in alike if valued.progress >= (1 - NEAR) * most)
    return max(near, key=lambda valued: (valued.shares, valued.rank))


@dataclass(slots=True)
class Planner:
    """Keeps to a plan until another is better for some time. Belongs to one thread."""

    current: Valued | None = None
    band: float = BAND
    _said: object = None  # settings of all jobs when the plan was made
    _better: int = 0  # looks in a row that found another plan better
    _left: set[object] = field(default_factory=set)  # plans, and who shared with whom
    _seen: dict[tuple[frozenset[Part], str], Worker] = field(default_factory=dict)  # as seen then

    def forget(self) -> None:
        """Accept the next plan whatever it is, because `current` is not in force any more."""
        self._said = None

    def look(self, scene: Scene) -> str:
        """Choose `current` anew; return why it is another plan than before, or "" if it is not.

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
        """Like `look`, with the best plan of the scene found elsewhere; None: there are no jobs.

        `in_force`: `current` as the tuner has resized it; empty: it has not. `kept`: jobs measured
        to keep their objectives under it.
        """
        said, before = _said(scene), self.current
        if found is None or before is None or said != self._said:
            self.current, self._said, self._better = found, said, 0
            self._begin_anew()
            return "the jobs changed, or more is known of one" if found else ""
        in_force = in_force or before.plan
        self._note_load(scene, in_force)
        self.current, now = scene.value(before.plan), scene.value(in_force)
        # The tuner gives up progress for requests that take longer than forecast; that alone makes
        # no other plan better.
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
            return f"it would miss {objectives(found.missed)} instead of {now.missed}"
        return f"it promises {found.progress:.2f} of progress by weight, not {now.progress:.2f}"

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
    """Tell whether the load of a job is another than when it was seen first under the plan."""
    if (worker.rate_count, known.rate_count) != (0, 0):
        if not (worker.rate_count and known.rate_count):
            return True
        spans = [one.rate_count / one.rate for one in (worker, known)]
        if is_another_load(worker.rate_count, spans[0], known.rate_count, spans[1]):
            return True
    takes = ((worker.solo_ns, known.solo_ns), (worker.at(fewest_sms), known.at(fewest_sms)))
    return any(abs(now - was) > LOAD_CHANGE * was for now, was in takes)


def _sharing(plan: Plan) -> frozenset[frozenset[str]]:
    """Return who shares with whom, on however many groups."""
    return frozenset(frozenset(part.members) for part in plan)


def _said(scene: Scene) -> frozenset[tuple[object, ...]]:
    """Return what plans depend on that is not measured, and which jobs they guess about."""
    gpu, workers = scene.gpu, scene.workers.values()
    of_gpu = (gpu.groups, gpu.sms_of_group, gpu.can_mix, gpu.can_divide, gpu.keeps_sizes)
    return frozenset(
        (w.name, w.weight, w.slo_ns, w.groups, w.share, w.is_known, *of_gpu) for w in workers
    )


def _is_clearly_better(
    found: Valued, now: Valued, scene: Scene, band: float, kept: Collection[str]
) -> bool:
    """Tell whether a plan is so much better that forecast errors cannot account for it.

    A forecast near an objective is not certain, because it moves with what is measured. Nor is an
    objective certainly missed if the excess is within the uncertainty of request sizes.
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
