"""A plan for sharing one GPU, and what is to be expected of it.

A plan divides the SMs into *parts*; the jobs of a part take turns on it, those of different parts
run side by side. One part is sharing in time, a part for each job is sharing in space, and all that
lies between is both, as gpu-lets are (Choi et al., USENIX ATC 2022, section 4).

Progress is counted as core/turns/trials.py counts it: 1 is what a job gets done alone on the whole
GPU; of one that answers requests at a rate, the part of them that it answers.

    iteration   on the SMs of its part, by the job's scaling curve, times the slowdown by the jobs
                of other parts, of each the one that slows it down most (interference.py)
    pauses      of the host between iterations take nobody's turn: of a request they are no part,
                and of an iteration they pass while others have the SMs
    requests    come to a part by chance, and are answered in order of arrival; p99 is that of a
                queue with one server (queueing.py), behind a turn that is under way. Of who has one
                at a time none waits for another of its own, for the next begins after it; and
                others wait for one of it at most, however often they come, and for what comes by
                chance meanwhile: so long in all where that is less
    the rest    what requests leave of a part goes to its other jobs: who said a share of the time
                has that, the others the rest by weight; what one has no use for goes to the others
                (max-min fairness; Bertsekas and Gallager, Data Networks, section 6.5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, inf

from tandemd.core.planner.queueing import Asked, Load
from tandemd.core.tuner.sizes import ALIKE, Sizes
from tandemd.core.turns.interference import Features, Interference, Neighbour
from tandemd.core.words import counted

_ALIKE = 1 - 1e-6  # of a share: what is off by less has been rounded
LEAST_REST = 0.05  # of the time, to those who said no share, however much others said


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One job, as the planner sees it."""

    name: str
    solo_ns: float  # an iteration or a request, alone on the whole GPU
    at: Callable[[int], float]  # the same on so many SMs, alone
    features: Features = field(default_factory=Features)
    weight: float = 1.0
    slo_ns: int = 0  # of the p99 of its requests; 0 = none
    rate: float = 0.0  # requests a second; 0 = it does what it can
    rate_count: int = 0  # requests that tell it; 0 = somebody said it
    times: float = 1.0  # as long as an iteration a quick request takes, pauses not counted
    sizes: Sizes = ALIKE  # of its requests, in quick ones
    is_serial: bool = False  # it has one request at a time
    pause_ns: float = 0.0  # of an iteration: the host does something else, the GPU is anybody's
    rest_ns: float = 0.0  # of one that serves: between two iterations, where its rate is not known
    groups: int = 0  # that a person fixed; 0 = any number
    is_known: bool = True  # how it scales; else what it takes on other SMs is assumed
    share: float = 0.0  # of the time, that a person said, where all take turns; 0 = nothing
    tier: int = 0  # the lower, the more urgent: it need not wait for the end of a turn of others


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What is divided."""

    groups: int  # that can be told apart; 1 = only time can be shared
    sms_of_group: int
    turn_ns: float = 10_000_000  # that a job without requests keeps its part at most
    can_mix: bool = True  # several jobs may take turns on a part beside others
    can_divide: bool = True  # else all take turns on all there is
    keeps_sizes: bool = False  # what a person fixed is a part of its own, and no share of the time


@dataclass(frozen=True, slots=True)
class Part:
    """Jobs that take turns on so many groups of SMs."""

    groups: int
    members: tuple[str, ...]


Plan = tuple[Part, ...]
Rank = tuple[int, int, float, int]  # of a plan: the greatest is the best
Seat = tuple[str, int]  # a job, and the groups of the part that it is in


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is to be expected of one job."""

    progress: float
    p99_ns: float = 0.0  # of its requests; inf = it cannot answer them all; 0 = it has none
    slowdown: float = 1.0  # by neighbours


@dataclass(frozen=True, slots=True)
class Valued:
    """A plan and what is to be expected of it."""

    plan: Plan
    forecasts: Mapping[str, Forecast]
    missed: int  # objectives
    progress: float  # of all jobs together by weight, 0 to their number
    slighted: int = 0  # jobs about which it guesses, that are to get less than their share
    weights: Mapping[str, float] = field(default_factory=dict, repr=False)  # of the jobs in it

    @property
    def shares(self) -> tuple[float, ...]:
        """What each job gets for its weight, the least first: the greatest is the fairest plan.

        Max-min fairness, of progress (Bertsekas and Gallager, Data Networks, section 6.5).
        """
        mean = sum(self.weights.values()) / max(1, len(self.weights))
        shares = (one.progress * mean / self.weights[n] for n, one in self.forecasts.items())
        return tuple(sorted(round(share, 6) for share in shares))

    @property
    def rank(self) -> Rank:
        """Objectives, then shares, then progress, then as few parts as will do."""
        return (-self.missed, -self.slighted, round(self.progress, 6), -len(self.plan))

    @property
    def kind(self) -> str:
        """What is shared."""
        if len(self.plan) == 1:
            return "time"
        return "space" if all(len(part.members) == 1 for part in self.plan) else "time and space"


@dataclass(frozen=True, slots=True)
class Scene:
    """Jobs on a GPU, and what they do to each other."""

    workers: Mapping[str, Worker]
    gpu: Gpu
    model: Interference

    def value(self, plan: Plan) -> Valued:
        """What is to be expected of a plan."""
        forecasts: dict[str, Forecast] = {}
        for part in plan:
            forecasts |= self.forecast(part, [other for other in plan if other is not part])
        workers = self.workers
        weight_of = {name: worker.weight for name, worker in workers.items()}
        weights = sum(weight_of.values())
        progress = sum(workers[name].weight * each.progress for name, each in forecasts.items())
        missed = sum(self.misses(name, forecast) for name, forecast in forecasts.items())
        slighted = sum(
            forecasts[name].progress < _ALIKE * worker.weight / weights
            for name, worker in workers.items()
            if not (worker.is_known or worker.groups)
        )
        total = progress * len(workers) / weights
        return Valued(plan, forecasts, missed, total, slighted, weight_of)

    def misses(self, name: str, forecast: Forecast) -> bool:
        """Its objective, if it has one."""
        slo_ns = self.workers[name].slo_ns
        return bool(slo_ns) and forecast.p99_ns > slo_ns

    def forecast(self, part: Part, others: Sequence[Part]) -> Iterable[tuple[str, Forecast]]:
        """Of the members of a part, beside other parts."""
        return self.slowed(part, tuple(self._slowdown(n, part, others) for n in part.members))

    def slowed(self, part: Part, by: Sequence[float]) -> Iterable[tuple[str, Forecast]]:
        """The same, where each member takes so many times as long as alone on these SMs."""
        slowdowns = dict(zip(part.members, by, strict=True))
        sms = part.groups * self.gpu.sms_of_group
        takes_ns = {name: self._takes_ns(name, sms) * slowdowns[name] for name in part.members}
        serving = [self.workers[name] for name in part.members if self.workers[name].rate]
        asked = {one.name: Asked(one.rate, takes_ns[one.name], one.sizes) for one in serving}
        every = Load.of(asked.values())
        use, p99_of = every.use, self._p99s(asked, every)
        grants = self._grants(part, max(0.0, 1 - use), takes_ns)
        found: list[tuple[str, Forecast]] = []
        for name in part.members:
            worker = self.workers[name]
            if worker.rate:
                progress = min(1.0, 1 / use)
                p99_ns = p99_of(name) + self._turn_ns(worker, takes_ns)
            else:
                p99_ns = takes_ns[name] / grants[name] if grants[name] else inf
                progress = worker.solo_ns / p99_ns
            forecast = Forecast(progress=progress, p99_ns=p99_ns, slowdown=slowdowns[name])
            found.append((name, forecast))
        return found

    def _p99s(self, asked: Mapping[str, Asked], every: Load) -> Callable[[str], float]:
        """The p99 of the requests of each job, but for what a turn leaves of itself.

        `every`: all of them together.
        """
        serial = {name: each for name, each in asked.items() if self.workers[name].is_serial}
        chance = Load.of(each for name, each in asked.items() if name not in serial)

        def of(name: str) -> float:
            own = asked[name]
            p99_ns = (every.without(own) if name in serial else every).p99_ns(own)
            if not serial or chance.use >= 1:
                return p99_ns
            before_ns = _one_each_ns(each for other, each in serial.items() if other != name)
            return min(p99_ns, chance.p99_ns(own) + before_ns / (1 - chance.use))

        return of

    def _takes_ns(self, name: str, sms: int) -> float:
        """Of the time of a part, by an iteration or a quick request."""
        worker = self.workers[name]
        times = worker.times if worker.rate else 1.0
        return max(1.0, times * (worker.at(sms) - worker.pause_ns))

    def _grants(self, part: Part, left: float, takes_ns: Mapping[str, float]) -> dict[str, float]:
        """What each job without requests gets of the part's time, 0..1."""
        workers = [self.workers[name] for name in part.members if not self.workers[name].rate]
        shared = _by_shares(workers, left) if part.groups == self.gpu.groups else {}
        weights = shared or {worker.name: worker.weight for worker in workers}
        demands = {
            worker.name: takes_ns[worker.name]
            / (takes_ns[worker.name] + max(worker.pause_ns, worker.rest_ns))
            for worker in workers
        }
        return _max_min(left, weights, demands)

    def beside(self, job: Seat, others: tuple[Seat, ...]) -> float:
        """How many times as long one takes beside these, all of which run at the same time."""
        own, *them = (
            Neighbour(self.workers[name].features, groups / self.gpu.groups)
            for name, groups in (job, *others)
        )
        return self.model.factor(own, them)

    def _slowdown(self, name: str, part: Part, others: Sequence[Part]) -> float:
        own = (name, part.groups)
        return self.beside(own, tuple(self.worst(own, other) for other in others))

    def worst(self, own: Seat, other: Part) -> Seat:
        """The job of another part that slows it down most: one of a part runs at a time."""
        them = [(name, other.groups) for name in other.members]
        return max(them, key=lambda one: self.beside(own, (one,))) if them[1:] else them[0]

    def _turn_ns(self, worker: Worker, takes_ns: Mapping[str, float]) -> float:
        """What is left of one, of a job without requests, when a request of the worker comes."""
        rivals = [self.workers[name] for name in takes_ns if not self.workers[name].rate]
        return max((self._rests_ns(worker, one, takes_ns[one.name]) for one in rivals), default=0.0)

    def _rests_ns(self, worker: Worker, rival: Worker, iteration_ns: float) -> float:
        """Of a turn of the rival: it ends with an iteration, unless somebody more urgent comes."""
        turn_ns = self.gpu.turn_ns
        if worker.tier < rival.tier:
            return min(turn_ns, iteration_ns)
        return iteration_ns * max(1, ceil(turn_ns / iteration_ns))


def objectives(count: int) -> str:
    """So many, for people."""
    return counted(count, "objective")


def _by_shares(workers: Sequence[Worker], left: float) -> dict[str, float]:
    """Weights where somebody said a share, of all the time; empty: nobody did."""
    asked = sum(worker.share for worker in workers)
    if not asked:
        return {}
    silent = sum(worker.weight for worker in workers if not worker.share)
    rest = max(LEAST_REST, left - asked) if silent else 0.0
    return {w.name: w.share or rest * w.weight / silent for w in workers}


def _max_min(
    left: float, weights: Mapping[str, float], demands: Mapping[str, float]
) -> dict[str, float]:
    """`left` divided by weight; what one has no use for goes to the others."""
    given: dict[str, float] = {}
    names = sorted(weights, key=lambda one: demands[one] / weights[one])  # the modest first
    waiting = list(accumulate(weights[name] for name in reversed(names)))  # behind and with each
    for name in names:
        given[name] = min(demands[name], left * weights[name] / waiting.pop())
        left -= given[name]
    return given


def _one_each_ns(asked: Iterable[Asked]) -> float:
    """What one request of each of these takes: of one of them one of the largest."""
    known = list(asked)
    larger_ns = max((each.p99_ns - each.mean_ns for each in known), default=0.0)
    return sum(each.mean_ns for each in known) + larger_ns
