"""What is known of how jobs slow each other down, for choosing who runs beside whom.

Progress measured in trials (trials.py) teaches the model of the GPU (interference.py). From then
on, among groups that may share a turn, those predicted to slow each other down least go first, and
no group joins that would make a job with an objective miss it. A third joins only if the three are
predicted to get more done than the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tandemd.core.model import Group, GroupKey
from tandemd.core.turns.interference import Features, Interference, Neighbour, Trial, features_of
from tandemd.core.turns.trials import Measured

FINE = 0.1  # predictions that differ by less are equal
GAIN = 1.05  # a third that adds less adds nothing (as in steps of a scaling curve)


@dataclass(slots=True)
class Foresight:
    """Predictions for one island, cached until something is learnt or `forget` is called."""

    model: Interference = field(default_factory=Interference)
    learnt: list[Trial] = field(default_factory=list)  # until somebody takes them
    _slowdowns: dict[tuple[GroupKey, ...], float | None] = field(default_factory=dict)
    _costs: dict[tuple[GroupKey, GroupKey], float] = field(default_factory=dict)

    @property
    def is_taught(self) -> bool:
        """Tell whether anything was measured; without measurements there are no predictions."""
        return self.model.count > 0

    def forget(self) -> None:
        """Drop the cache: groups, or the nature of their work, have changed."""
        self._slowdowns.clear()
        self._costs.clear()

    def learn(self, measured: Iterable[Measured], members: Iterable[Group]) -> None:
        """Learn from what trials measured of these groups."""
        self.forget()
        known: dict[GroupKey, Features | None] = {g.key: features(g) for g in members}
        for one in measured:
            own, others = known.get(one.key), [known.get(key) for key in one.beside]
            beside = tuple(Neighbour(other) for other in others if other is not None)
            if own is None or len(beside) < len(others):
                continue
            trial = Trial(own=Neighbour(own), others=beside, factor=one.factor)
            if self.model.learn(trial):
                self.learnt.append(trial)

    def take_learnt(self) -> tuple[Trial, ...]:
        """Return what was learnt since the last call."""
        learnt, self.learnt = tuple(self.learnt), []
        return learnt

    def slowdown(self, group: Group, *beside: Group) -> float | None:
        """Predict the factor by which its work takes longer beside the others; None: not known.

        It is not known before anything was measured, or for work of unknown nature.
        """
        if not self.is_taught:
            return None
        asked = (group.key, *sorted(other.key for other in beside))
        if asked not in self._slowdowns:
            own, others = features(group), [features(other) for other in beside]
            them = [Neighbour(other) for other in others if other is not None]
            is_unknown = own is None or len(them) < len(others)
            self._slowdowns[asked] = (
                None if own is None or is_unknown else self.model.factor(Neighbour(own), them)
            )
        return self._slowdowns[asked]

    def done(self, *groups: Group) -> float | None:
        """Predict their joint progress as trials count it: 1 equals taking turns."""
        slowdowns = [self.slowdown(one, *_but(one, groups)) for one in groups]
        known = [slowdown for slowdown in slowdowns if slowdown is not None]
        return sum(1 / each for each in known) if len(known) == len(groups) else None

    def adds(self, third: Group, *pair: Group) -> bool:
        """Tell whether the three should get more done than the pair; False if not known."""
        more, without = self.done(third, *pair), self.done(*pair)
        return more is not None and without is not None and more >= GAIN * without

    def cost(self, group: Group, beside: Group) -> float:
        """Rank for candidates to join: the lowest goes first; 0 while nothing is known."""
        pair = (group.key, beside.key)
        if pair not in self._costs:
            slowdowns = [self.slowdown(group, beside), self.slowdown(beside, group)]
            more = sum(each - 1 for each in slowdowns if each is not None)
            self._costs[pair] = FINE * round(more / FINE)
        return self._costs[pair]

    def endangered(self, *groups: Group) -> Group | None:
        """A group that would miss an objective if they ran together; None: none known."""
        for one in groups:
            if not any(job.spec.slo_p99_ns for job in one.jobs.values()):
                continue
            slowdown = self.slowdown(one, *_but(one, groups))
            if slowdown is not None and _misses(one, slowdown):
                return one
        return None


def _but(one: Group, groups: Iterable[Group]) -> list[Group]:
    return [group for group in groups if group is not one]


def features(group: Group) -> Features | None:
    """Features of the work of all its processes; None if any of them is not known."""
    mixes = [process.mix for process in group.processes.values()]
    found = [features_of(mix) for mix in mixes if mix is not None]
    if not found or len(found) < len(mixes):
        return None
    count = len(found)
    return Features(
        sm=sum(each.sm for each in found) / count,
        memory=sum(each.memory for each in found) / count,
        copy=sum(each.copy for each in found) / count,
    )


def _misses(group: Group, slowdown: float) -> bool:
    """Tell whether the slowdown breaks an objective that the group meets now."""
    return any(
        job.latency.p99_ns <= job.spec.slo_p99_ns < job.latency.p99_ns * slowdown
        for job in group.jobs.values()
    )
