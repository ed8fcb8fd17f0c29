"""A plan for sharing one GPU, and the forecast of what each job gets from it.

A plan divides the SMs into *parts*; the jobs of a part take turns on it, and jobs of different
parts run side by side. A single part is sharing in time, a part for each job is sharing in space,
and everything in between is both, like gpu-lets (Choi et al., USENIX ATC 2022, section 4).

Progress is measured as in core/turns/trials.py: 1 is what a job gets done alone on the whole GPU;
for a job that answers requests at a rate, it is the fraction of them that it answers.

    iteration   takes what the job's scaling curve says for the SMs of its part, times the slowdown
                by jobs of other parts; of each part, the job that slows it down most counts
                (interference.py)
    pauses      of the host between iterations take nobody's turn: they are no part of a request,
                and of an iteration they pass while others have the SMs
    requests    arrive at a part by chance and are answered in order of arrival; p99 is that of a
                queue with one server (queueing.py), behind a turn that is under way. A job that has
                one request at a time never waits for another of its own, because the next begins
                after it. Others wait for at most one request of such a job, however often its
                requests come, and for whatever comes by chance meanwhile, if that is less than in
                the queue
    the rest    what requests leave of a part goes to its other jobs: a job that a person gave a
                share of the time gets that, the others get the rest by weight; what a job has no
                use for goes to the others (max-min fairness; Bertsekas and Gallager, Data
                Networks, section 6.5)
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

_ALIKE = 1 - 1e-6  # of a share: a smaller difference comes from rounding
LEAST_REST = 0.05  # of the time, for jobs without a share, however much the shares add up to


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One job, as the planner sees it."""

    name: str
    solo_ns: float  # one iteration or request, alone on the whole GPU
    at: Callable[[int], float]  # the same on that many SMs, alone
    features: Features = field(default_factory=Features)
    weight: float = 1.0
    slo_ns: int = 0  # of the p99 of its requests; 0 = none
    rate: float = 0.0  # requests a second; 0 = it runs as fast as it can
    rate_count: int = 0  # requests the rate was measured from; 0 = somebody stated it
    times: float = 1.0  # a quick request in iterations, pauses not counted
    sizes: Sizes = ALIKE  # of its requests, relative to a quick one
    is_serial: bool = False  # it has one request at a time
    pause_ns: float = 0.0  # of an iteration: the host is busy and the GPU is free for others
    rest_ns: float = 0.0  # between two iterations of a serving job whose rate is not known
    groups: int = 0  # fixed by a person; 0 = any number
    is_known: bool = True  # its scaling is known; else its time on other SMs is assumed
    share: float = 0.0  # of the time, set by a person, where all take turns; 0 = none
    tier: int = 0  # the lower, the more urgent: it need not wait for the end of a turn of others


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The GPU that plans divide."""

    groups: int  # that can be told apart; 1 = only time can be shared
    sms_of_group: int
    turn_ns: float = 10_000_000  # the longest a job without requests keeps its part
    can_mix: bool = True  # several jobs may take turns on one of several parts
    can_divide: bool = True  # else all take turns on all SMs
    keeps_sizes: bool = False  # a size fixed by a person is a part of its own, not a share of time


@dataclass(frozen=True, slots=True)
class Part:
    """Jobs that take turns on this many groups of SMs."""

    groups: int
    members: tuple[str, ...]


Plan = tuple[Part, ...]
Rank = tuple[int, int, float, int]  # of a plan: the greatest is best
Seat = tuple[str, int]  # a job, and the groups of the part that it is in


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What to expect for one job."""

    progress: float
    p99_ns: float = 0.0  # of its requests; inf = it cannot answer them all; 0 = it has none
    slowdown: float = 1.0  # by neighbours


@dataclass(frozen=True, slots=True)
class Valued:
    """A plan with its forecasts."""

    plan: Plan
    forecasts: Mapping[str, Forecast]
    missed: int  # objectives that it misses
    progress: float  # of all jobs together by weight, from 0 to their number
    slighted: int = 0  # jobs of unknown scaling that would get less than their share
    weights: Mapping[str, float] = field(default_factory=dict, repr=False)  # of the jobs in it

    @property
    def shares(self) -> tuple[float, ...]:
        """What each job gets for its weight, the least first; the greatest tuple is the fairest.

        This is max-min fairness of progress (Bertsekas and Gallager, Data Networks, section 6.5).
        """
        mean = sum(self.weights.values()) / max(1, len(self.weights))
        shares = (one.progress * mean / self.weights[n] for n, one in self.forecasts.items())
        return tuple(sorted(round(share, 6) for share in shares))

    @property
    def rank(self) -> Rank:
        """The order of plans: by objectives, shares of guessed jobs, progress, and few parts."""
        return (-self.missed, -self.slighted, round(self.progress, 6), -len(self.plan))

    @property
    def kind(self) -> str:
        """What the jobs share: time, space, or both."""
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
        """Return the plan with its forecasts."""
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
        """Tell whether the job misses its objective, if it has one."""
        slo_ns = self.workers[name].slo_ns
        return bool(slo_ns) and forecast.p99_ns > slo_ns

    def forecast(self, part: Part, others: Sequence[Part]) -> Iterable[tuple[str, Forecast]]:
        """Return the forecasts for the members of a part beside other parts."""
        return self.slowed(part, tuple(self._slowdown(n, part, others) for n in part.members))

    def slowed(self, part: Part, by: Sequence[float]) -> Iterable[tuple[str, Forecast]]:
        """Return the same if each member takes this many times as long as alone on these SMs."""
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
        """Return a function for the p99 of a job's requests, without the wait for a turn under way.

        `every`: the load of all requests together.
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
        """Return how much of the part's time an iteration or a quick request takes."""
        worker = self.workers[name]
        times = worker.times if worker.rate else 1.0
        return max(1.0, times * (worker.at(sms) - worker.pause_ns))

    def _grants(self, part: Part, left: float, takes_ns: Mapping[str, float]) -> dict[str, float]:
        """Return the fraction of the part's time that each job without requests gets, 0..1."""
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
        """Return how many times as long a job takes beside these others, all running at once."""
        own, *them = (
            Neighbour(self.workers[name].features, groups / self.gpu.groups)
            for name, groups in (job, *others)
        )
        return self.model.factor(own, them)

    def _slowdown(self, name: str, part: Part, others: Sequence[Part]) -> float:
        own = (name, part.groups)
        return self.beside(own, tuple(self.worst(own, other) for other in others))

    def worst(self, own: Seat, other: Part) -> Seat:
        """Return the job of another part that slows it down most, as only one runs at a time."""
        them = [(name, other.groups) for name in other.members]
        return max(them, key=lambda one: self.beside(own, (one,))) if them[1:] else them[0]

    def _turn_ns(self, worker: Worker, takes_ns: Mapping[str, float]) -> float:
        """Return the longest that a turn under way delays a request of the worker.

        The turn is one of a job without requests.
        """
        rivals = [self.workers[name] for name in takes_ns if not self.workers[name].rate]
        return max((self._rests_ns(worker, one, takes_ns[one.name]) for one in rivals), default=0.0)

    def _rests_ns(self, worker: Worker, rival: Worker, iteration_ns: float) -> float:
        """Return the longest that a turn of the rival goes on once a request of the worker comes.

        A turn ends with an iteration; a more urgent worker ends it sooner.
        """
        turn_ns = self.gpu.turn_ns
        if worker.tier < rival.tier:
            return min(turn_ns, iteration_ns)
        return iteration_ns * max(1, ceil(turn_ns / iteration_ns))


def objectives(count: int) -> str:
    """Say how many objectives, for people."""
    return counted(count, "objective")


def _by_shares(workers: Sequence[Worker], left: float) -> dict[str, float]:
    """Return weights by the shares that people set, of all the time; empty: nobody set one."""
    asked = sum(worker.share for worker in workers)
    if not asked:
        return {}
    silent = sum(worker.weight for worker in workers if not worker.share)
    rest = max(LEAST_REST, left - asked) if silent else 0.0
    return {w.name: w.share or rest * w.weight / silent for w in workers}


def _max_min(
    left: float, weights: Mapping[str, float], demands: Mapping[str, float]
) -> dict[str, float]:
    """Divide `left` by weight; what one job has no use for goes to the others."""
    given: dict[str, float] = {}
    names = sorted(weights, key=lambda one: demands[one] / weights[one])  # least demanding first
    waiting = list(accumulate(weights[name] for name in reversed(names)))  # each and all after it
    for name in names:
        given[name] = min(demands[name], left * weights[name] / waiting.pop())
        left -= given[name]
    return given


def _one_each_ns(asked: Iterable[Asked]) -> float:
    """Return what one request of each of these takes, the one with the largest tail at its p99."""
    known = list(asked)
    larger_ns = max((each.p99_ns - each.mean_ns for each in known), default=0.0)
    return sum(each.mean_ns for each in known) + larger_ns
