"""Mixes of five networks on one GPU: the highest rates within objectives, by kind of sharing.

A simulation of gpu-let's experiment (Choi et al., USENIX ATC 2022, section 6: LeNet, GoogLeNet,
ResNet-50, SSD-MobileNet and VGG-16 with their objectives) that plans and tunes with the daemon's
own modules: planner, tuner, scaling curves, interference. It compares sharing in time with the
planner's choice on the same requests; the result is a ratio in the model, never on a card. Requests
arrive at random, one by one. A part of the GPU next answers the network whose objective is due
first, with as many of its waiting requests in one batch as the limit allows: the largest batch that
takes at most one *grain* alone on the whole GPU. Each kind of sharing uses the grain that suits it.

What the simulated GPU does, and the planner does not know: a part answers one batch after the
other; while several parts are busy, bandwidth-bound layers slow down by the factor by which the
demand for bandwidth exceeds the supply. The planner has scaling curves, the rates at which requests
were answered in the last window, and a model of slowdowns learnt from pairs that ran side by side.
It assumes that a part answers requests in order of arrival, as the daemon's turns do; here it does
not.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import permutations
from random import Random
from typing import Any

from bench.bars import bar, progress
from bench.partition_models import NETWORKS, Card
from tandemd.core.planner.exchange import Ease, least, on_offer, resized
from tandemd.core.planner.planner import Planner, best
from tandemd.core.planner.plans import Gpu, Part, Plan, Scene, Worker
from tandemd.core.space.scaling import Curve
from tandemd.core.tuner.latency import Latency
from tandemd.core.tuner.tuner import Settings, Sizes, Tuner
from tandemd.core.turns.interference import Features, Interference, Neighbour, Trial

CARD = Card()
MOST_BATCH = 32
GROUP_SMS = 4
GROUPS = CARD.sms // GROUP_SMS
SECOND_NS, MS_NS = 1_000_000_000, 1_000_000
SPAN_S = 10.0  # of one try
PERIOD_S = 20.0  # between changes of the load, as gpu-let's
ALLOWED = 0.01  # of each network's requests may miss: objectives are for the p99
GRAINS_MS = (5.0, 10.0, 20.0)
CLAIMED_GAIN, MISSED_LIMIT = (
    2.026,
    0.002,
)  # gpu-let's own results on cards: gain of partitioned over temporal sharing; share missed
# Request rates of the networks relative to each other: equal, more short requests, more long ones.
MIXES: Mapping[str, Sequence[float]] = {
    "equal": (1, 1, 1, 1, 1),
    "short": (4, 2, 1, 1, 0.5),
    "long": (0.5, 0.5, 1, 1, 2),
}
CHANGES = (0.5, 0.9, 0.6, 0.8, 0.3, 0.9)  # load in each period, relative to the highest kept
WINDOW_S = 2.0
NAMED = {network.name: network for network in NETWORKS}


@dataclass(slots=True)
class Batch:
    """Requests of one network that are answered together."""

    name: str
    came_s: list[float]
    left: float = 1.0  # share of its work


@dataclass(slots=True)
class Room:
    """A part of the GPU: the batch that it answers, and the requests that wait for it."""

    groups: int
    members: tuple[str, ...]
    waiting: dict[str, deque[float]] = field(default_factory=dict)  # arrival times, by name
    batch: Batch | None = None

    def take(self, limits: Mapping[str, int]) -> None:
        """If idle, begin a batch of the network whose objective is due first."""
        due_s = {n: came[0] + NAMED[n].slo_ms / 1e3 for n, came in self.waiting.items() if came}
        if self.batch is not None or not due_s:
            return
        name = min(due_s, key=lambda each: due_s[each])
        came_s = self.waiting[name]
        self.batch = Batch(name, [came_s.popleft() for _ in range(min(len(came_s), limits[name]))])


@dataclass(slots=True)
class Machine:
    """The simulated GPU. Time is seconds."""

    limits: Mapping[str, int]  # most requests in a batch
    rooms: list[Room] = field(default_factory=list)
    now_s: float = 0.0
    done: list[tuple[str, float, float]] = field(default_factory=list)  # name, came, ended

    def divide(self, plan: Plan) -> None:
        """Divide the GPU anew: waiting requests move, and so do running batches where they can.

        A batch whose new part is idle continues there; any other returns to waiting.
        """
        before = [(name, came_s) for room in self.rooms for name, came_s in waiting_in(room)]
        batches = [room.batch for room in self.rooms if room.batch]
        self.rooms = [Room(part.groups, part.members) for part in plan]
        for batch in batches:
            room = self._room_of(batch.name)
            if room.batch is None:
                room.batch = batch  # continues with its remaining work
            else:
                before += [(batch.name, came_s) for came_s in batch.came_s]
        for name, came_s in sorted(before, key=lambda each: each[1]):
            self._wait(name, came_s)

    def come(self, name: str) -> None:
        """Let a request arrive now."""
        self._wait(name, self.now_s)

    def run_until(self, end_s: float) -> None:
        """Answer requests until that time."""
        while self.now_s < end_s:
            for room in self.rooms:
                room.take(self.limits)
            busy = [(room, room.batch) for room in self.rooms if room.batch]
            takes_s = [
                work_s(batch.name, len(batch.came_s), room.groups) * slower
                for (room, batch), slower in zip(busy, slowdowns(busy), strict=True)
            ]
            left_s = [b.left * takes for (_, b), takes in zip(busy, takes_s, strict=True)]
            step_s = min([end_s - self.now_s, *left_s])
            self.now_s = end_s if step_s == end_s - self.now_s else self.now_s + step_s
            for (room, batch), takes, left in zip(busy, takes_s, left_s, strict=True):
                batch.left -= step_s / takes
                if left <= step_s:
                    self.done += [(batch.name, came_s, self.now_s) for came_s in batch.came_s]
                    room.batch = None

    def _wait(self, name: str, came_s: float) -> None:
        self._room_of(name).waiting.setdefault(name, deque()).append(came_s)

    def _room_of(self, name: str) -> Room:
        return next(room for room in self.rooms if name in room.members)


def waiting_in(room: Room) -> Iterator[tuple[str, float]]:
    """Yield name and arrival time of each waiting request."""
    return ((name, came_s) for name, all_came in room.waiting.items() for came_s in all_came)


def slowdowns(busy: Sequence[tuple[Room, Batch]]) -> list[float]:
    """The slowdown of each batch that runs beside the others: the simulation's ground truth."""
    needs = [needs_of(batch.name, len(batch.came_s), room.groups) for room, batch in busy]
    excess = max(1.0, sum(bandwidth for bandwidth, _ in needs))
    return [1 - bound + bound * excess for _, bound in needs]


@cache
def work_s(name: str, batch: int, groups: int) -> float:
    """The time a batch takes alone on so many groups."""
    return NAMED[name].solo_s(batch, groups * GROUP_SMS, CARD)


@cache
def needs_of(name: str, batch: int, groups: int) -> tuple[float, float]:
    """A batch's share of the bandwidth, and the share of its time that is bandwidth-bound."""
    network, sms = NAMED[name], groups * GROUP_SMS
    return network.bandwidth_part(batch, sms, CARD), network.memory_part(batch, sms, CARD)


@cache
def limit_of(name: str, grain_ms: float) -> int:
    """The largest batch that takes at most a grain alone on the whole GPU; at least one request."""
    sizes = range(MOST_BATCH, 1, -1)
    return next((b for b in sizes if 1e3 * work_s(name, b, GROUPS) <= grain_ms), 1)


def limits_of(grain_ms: float) -> dict[str, int]:
    """The limits of all networks."""
    return {name: limit_of(name, grain_ms) for name in NAMED}


def arrivals(rates: Mapping[str, float], span_s: float, seed: int) -> list[tuple[float, str]]:
    """Random arrivals, independent per network; the same for the same seed."""
    found = []
    for number, (name, rate) in enumerate(rates.items()):
        chance, at_s = Random(seed * 100 + number), 0.0
        while (at_s := at_s + chance.expovariate(rate)) < span_s:
            found.append((at_s, name))
    return sorted(found)


def ends_of(machine: Machine) -> list[tuple[str, float, float]]:
    """Name, arrival and end of all requests; one that still waits counts as ended now."""
    waiting = [
        *(each for room in machine.rooms for each in waiting_in(room)),
        *((r.batch.name, came_s) for r in machine.rooms if r.batch for came_s in r.batch.came_s),
    ]
    return [*machine.done, *((name, came_s, machine.now_s) for name, came_s in waiting)]


def late_and_all(machine: Machine) -> tuple[Counter[str], Counter[str]]:
    """Count each network's requests that missed their objective, and all its requests."""
    ends = ends_of(machine)
    late = Counter(name for name, came, end in ends if (end - came) * 1e3 > NAMED[name].slo_ms)
    return late, Counter(name for name, _, _ in ends)


def missed_part(machine: Machine) -> float:
    """The share of all requests that missed."""
    late, total = late_and_all(machine)
    return late.total() / total.total()


def missed_parts(machine: Machine) -> dict[str, float]:
    """The share of each network's requests that missed."""
    late, total = late_and_all(machine)
    return {name: late[name] / total[name] for name in total}


@cache
def curve_of(name: str, batch: int) -> Curve:
    """The scaling curve the daemon would have for an iteration with such a batch."""
    counts = tuple(GROUP_SMS * groups for groups in range(1, GROUPS + 1))
    times = tuple(int(work_s(name, batch, groups) * 1e9) for groups in range(1, GROUPS + 1))
    return Curve(sm_counts=counts, iteration_ns=times)


def features_of(name: str, batch: int) -> Features:
    """The features that recordings of the network running alone would show."""
    return Features(sm=1.0, memory=needs_of(name, batch, GROUPS)[1])


def taught() -> Interference:
    """The model the daemon has once every pair has run side by side, each on half of the GPU."""
    model, half, limits = Interference(), GROUPS // 2, limits_of(GRAINS_MS[-1])
    for one, other in permutations(NAMED, 2):
        busy = [(Room(half, (n,)), Batch(n, [0.0] * limits[n])) for n in (one, other)]
        own, beside = (
            Neighbour(features_of(name, limits[name]), half / GROUPS) for name in (one, other)
        )
        model.learn(Trial(own=own, others=(beside,), factor=slowdowns(busy)[0]))
    return model


def scene_of(rates: Mapping[str, float], grain_ms: float, model: Interference) -> Scene:
    """The planner's input: batches at their limit, at a rate that gives the request rates."""
    workers = {}
    for name, rate in rates.items():
        batch = limit_of(name, grain_ms)
        curve = curve_of(name, batch)
        workers[name] = Worker(
            name=name,
            solo_ns=curve.at(CARD.sms),
            at=curve.at,
            features=features_of(name, batch),
            slo_ns=int(NAMED[name].slo_ms * MS_NS),
            rate=rate / batch,
        )
    return Scene(workers, Gpu(groups=GROUPS, sms_of_group=GROUP_SMS), model)


def in_time(rates: Mapping[str, float], grain_ms: float) -> Plan:
    """Sharing in time: all networks take turns on all SMs, a batch each."""
    del grain_ms
    return (Part(GROUPS, tuple(rates)),)


def planned(model: Interference) -> Callable[[Mapping[str, float], float], Plan]:
    """The planner's choice, as a function of rates and grain."""
    return lambda rates, grain_ms: best(scene_of(rates, grain_ms, model)).plan


def play(
    plan: Plan, rates: Mapping[str, float], grain_ms: float, span_s: float = SPAN_S
) -> Machine:
    """Simulate requests for some time under one plan."""
    machine = Machine(limits_of(grain_ms))
    machine.divide(plan)
    for at_s, name in arrivals(rates, span_s, seed=1):
        machine.run_until(at_s)
        machine.come(name)
    machine.run_until(span_s)
    return machine


def most_kept(
    plan_for: Callable[[Mapping[str, float], float], Plan], mix: Sequence[float]
) -> tuple[float, float]:
    """Find the largest factor of a mix with no network missing more than `ALLOWED`; its grain."""

    def keeps(factor: float, grain_ms: float) -> bool:
        rates = rates_of(mix, factor)
        machine = play(plan_for(rates, grain_ms), rates, grain_ms)
        return max(missed_parts(machine).values()) <= ALLOWED

    return max((_bisect(partial(keeps, grain_ms=grain)), grain) for grain in GRAINS_MS)


def _bisect(is_kept: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    while is_kept(high):
        low, high = high, 2 * high
    while high - low > 0.05 * high and high > 0.1:
        middle = (low + high) / 2
        low, high = (middle, high) if is_kept(middle) else (low, middle)
    return low


def rates_of(mix: Sequence[float], factor: float) -> dict[str, float]:
    """Each network's requests per second."""
    return {name: share * factor for name, share in zip(NAMED, mix, strict=True)}


@dataclass(slots=True)
class Tuned:
    """The daemon's role under changing load: plans from windows' rates, sizes from the tuner."""

    machine: Machine
    grain_ms: float
    model: Interference
    planner: Planner = field(default_factory=Planner)
    tuner: Tuner = field(default_factory=Tuner)
    latencies: Mapping[str, Latency] = field(default_factory=lambda: {n: Latency() for n in NAMED})
    seen: int = 0  # how many of machine.done the tuner has been told of
    changes: int = 0

    def begin(self, rates: Mapping[str, float]) -> None:
        """Make the first plan, from declared rates."""
        self._plan(rates)
        slos_ns = {i: int(network.slo_ms * MS_NS) for i, network in enumerate(NETWORKS)}
        self.tuner.seat(slos_ns, list(slos_ns), 0)

    def window(self) -> None:
        """End a window: plan with the rates of the requests answered in it."""
        span_ns, now_ns = int(WINDOW_S * 1e9), int(self.machine.now_s * 1e9)
        found = {n: each.steady_rate(span_ns, now_ns)[0] for n, each in self.latencies.items()}
        self._plan(found)

    def look(self) -> None:
        """Tell the tuner about answered requests, and apply its changes."""
        now_ns = int(self.machine.now_s * 1e9)
        for name, came_s, end_s in self.machine.done[self.seen :]:
            took_ns, end_ns = int((end_s - came_s) * 1e9), int(end_s * 1e9)
            self.tuner.take(_number(name), [took_ns], end_ns)
            self.latencies[name].add([took_ns], end_ns)
        self.seen = len(self.machine.done)
        settings = Settings(window_ns=int(WINDOW_S * 1e9))
        if self.tuner.is_due(settings, now_ns):
            for change in self.tuner.decide(self._sizes(), settings, now_ns):
                self._resize(change.job_id, change.size)

    def _plan(self, rates: Mapping[str, float]) -> None:
        # A network without requests in the window still needs a rate.
        known = {name: rate or 0.5 / WINDOW_S for name, rate in rates.items()}
        if self.planner.look(scene_of(known, self.grain_ms, self.model)):
            assert self.planner.current is not None
            self.machine.divide(self.planner.current.plan)
            self.changes += 1

    def _sizes(self) -> dict[int, Sizes]:
        """The sizes for the tuner: as in the daemon, a part can grow by what others can give."""
        return {
            _number(name): Sizes(
                now=part.groups,
                least=least(self.plan, part, self._ease),
                most=part.groups + on_offer(self.plan, part, self._ease),
                step=1,
                together=frozenset(map(_number, part.members)),
            )
            for part in self.plan
            for name in part.members
        }

    def _ease(self, name: str) -> Ease:
        residual = self.tuner.residual(_number(name))
        return Ease.SPARES if residual is not None and residual > 0.2 else Ease.NEEDS

    def _resize(self, number: int, size: int) -> None:
        own = next(part for part in self.plan if NETWORKS[number].name in part.members)
        plan = resized(self.plan, own, size, self._ease)
        if plan != self.plan:
            self.machine.divide(plan)
            self.changes += 1

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return tuple(Part(one.groups, one.members) for one in self.machine.rooms)


def _number(name: str) -> int:
    return next(i for i, network in enumerate(NETWORKS) if network.name == name)


def fluctuate(
    mix: Sequence[float],
    factor: float,
    grain_ms: float,
    model: Interference,
    loads: Sequence[float] = CHANGES,
) -> tuple[float, int]:
    """Return the share that missed under a load that changes every period, and changes of sizes."""
    tuned = Tuned(Machine(limits_of(grain_ms)), grain_ms, model)
    tuned.begin(rates_of(mix, factor * loads[0]))
    for number, part in enumerate(loads):
        come = arrivals(rates_of(mix, factor * part), PERIOD_S, seed=number + 50)
        begin_s = number * PERIOD_S
        for window in range(int(PERIOD_S / WINDOW_S)):
            _play_window(tuned, come, begin_s, window * WINDOW_S)
    return missed_part(tuned.machine), tuned.changes


def _play_window(
    tuned: Tuned, come: Sequence[tuple[float, str]], begin_s: float, from_s: float
) -> None:
    for at_s, name in come:
        if from_s <= at_s < from_s + WINDOW_S:
            tuned.machine.run_until(begin_s + at_s)
            tuned.machine.come(name)
            tuned.look()
    tuned.machine.run_until(begin_s + from_s + WINDOW_S)
    tuned.look()
    tuned.window()


def measure() -> dict[str, Any]:
    """Run all mixes; the bars: planned is never worse than in time, and few requests miss."""
    figures = run()
    bars = {}
    for name in MIXES:
        progress(f"mixes: {name}: {figures[name]['gain']:.2f} of sharing in time")
        bars[f"{name}_time_vs_planned"] = bar(1 / figures[name]["gain"], 1.0)
        bars[f"{name}_missed"] = bar(figures[name]["missed"], MISSED_LIMIT)
    return {"claimed_gain": CLAIMED_GAIN, **figures, "bars": bars}


def run() -> dict[str, Any]:
    """For all mixes, find each kind of sharing's highest kept rate, and misses under changing load.

    Rates are sums over all networks. `gain` is the planner's highest rate over that of sharing in
    time, `missed` the share of all requests that missed while the load changed, `changes` how often
    sizes changed meanwhile, `plan` the groups and members of each part.
    """
    model = taught()
    figures: dict[str, Any] = {"foretold_off": model.error}
    for name, mix in MIXES.items():
        by_time, _ = most_kept(in_time, mix)
        by_plan, grain_ms = most_kept(planned(model), mix)
        missed, changes = fluctuate(mix, by_plan, grain_ms, model)
        plan = planned(model)(rates_of(mix, by_plan), grain_ms)
        figures[name] = {
            "time_requests_s": by_time * sum(mix),
            "planned_requests_s": by_plan * sum(mix),
            "gain": by_plan / by_time,
            "grain_ms": grain_ms,
            "missed": missed,
            "changes": changes,
            "plan": [[part.groups, *part.members] for part in plan],
        }
    return figures


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
