"""Three jobs on a GPU under constant load: a queue for each part, and the scheduler's core.

Requests arrive at random and are answered in order of arrival by all jobs that share a set of SMs;
where jobs take turns, a share of the time acts like a slower GPU. Where requests vary in size each
job runs one at a time, and the next follows at once if it is already due; the core is told how long
each was held.
"""

import heapq
from dataclasses import dataclass, replace
from random import Random

from tandemd.core.events import (
    FindPlan,
    PlanFound,
    ProcessAttached,
    RequestsServed,
    ScalingTold,
    Ticked,
    UsageSampled,
)
from tandemd.core.model import JobSpec, Options, SmSet, Split, Usage
from tandemd.core.planner.planner import alternatives
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.scaling import Curve
from tandemd.core.tuner.latency import RequestKind

MS, SECOND = 1_000_000, 1_000_000_000
GROUPS, SMS = 8, 16
QUANTUM_NS, TICK_NS, WINDOW_NS = 5 * MS, 100 * MS, SECOND
PATIENCE_NS = 2 * SECOND  # a request that would wait longer is turned away
SPREAD = {False: 0.1, True: 0.6}  # of the logarithm of sizes, by whether they vary
LARGE = 2.5  # nineteen of twenty varying requests are smaller
HERE = frozenset({0})
GREEN = {
    "mps_gpus": HERE,
    "splits": {0: Split(groups=GROUPS, group_sms=SMS)},
    "sm_counts": {0: GROUPS * SMS},
    "probe_sets": False,
}


@dataclass(frozen=True)
class Load:
    """One job's load: as fast on `knee` groups as on all; without a rate it is always busy."""

    knee: int
    ms: float  # per iteration or request on all SMs
    rate: float = 0.0
    slo_ns: int = 0

    def takes_ns(self, sms):
        return self.ms * MS * max(1.0, self.knee * SMS / sms)

    @property
    def curve(self):
        counts = tuple(range(SMS, GROUPS * SMS + 1, SMS))
        times = tuple(int(self.takes_ns(sms)) for sms in counts)
        return Curve(sm_counts=counts, iteration_ns=times, recorded_sms=128, recorded_ns=times[-1])


def loads_of(chance, servers):
    """Return three jobs, `servers` of which answer requests."""
    found = []
    for number in range(3):
        knee, ms = chance.choice([1, 2, 3, 5, 8]), chance.uniform(2, 10)
        use, times = chance.uniform(0.05, 0.5), chance.choice([2, 3, 5, 10])
        is_server = number < servers
        found.append(
            Load(knee, ms, use / (ms / 1e3), int(times * ms * MS)) if is_server else Load(knee, ms)
        )
    return found


class Steady:
    """Plays the load event by event."""

    def __init__(self, seed, *, tuner, planner, green=True, varied=False):
        self.chance, self.is_green, self.now_ns = Random(seed), green, 0
        self.is_varied, self.due_ns, self.where = varied, {}, {}
        self.core = Scheduler(
            Options(
                policy="fair",
                tuner=tuner,
                planner=planner,
                tuner_window_ns=WINDOW_NS,
                quantum_ns=QUANTUM_NS,
                **(GREEN if green else {}),
            )
        )
        loads = loads_of(self.chance, self.chance.randint(1, 3 if green else 2))
        if varied:  # leave room for large requests
            loads = [replace(load, slo_ns=int(LARGE * load.slo_ns)) for load in loads]
        self.loads = dict(enumerate(loads, start=1))
        self.under_way = dict.fromkeys(self.loads, 0)
        self.coming, self.free_ns, self.sizes, self.changes = [], {}, None, []
        for number, load in self.loads.items():
            spec = JobSpec(slo_p99_ns=load.slo_ns)
            self.tell(
                ProcessAttached,
                process_id=number,
                job_id=number,
                uid=1000,
                gpu=0,
                spec=spec,
                takes_files=True,
                gives_back=True,
            )
            self.tell(ScalingTold, process_id=number, curve=load.curve, doubt="")
            if load.rate:
                self.expect(number)
        self.push(TICK_NS, "tick")

    def play(self, until_s):
        """Return when sizes changed, and what they became."""
        while self.coming[0][0] <= until_s * SECOND:
            at_ns, what, number, took = heapq.heappop(self.coming)
            self.now_ns = at_ns
            if what == "come":
                self.answer(number)
            elif what == "end":
                self.tell(
                    RequestsServed,
                    process_id=number,
                    kind=RequestKind.MARKED,
                    durations_ns=took[:1],
                    held_ns=took[1:],
                    at_once=self.under_way[number],
                )
                self.under_way[number] -= 1
            else:
                self.tell_where()
                self.tell(Ticked)
                self.push(TICK_NS, "tick")
            if what == ("end" if self.is_varied else "come"):
                self.expect(number)
            self.look()
        return self.changes

    def push(self, after_ns, what, number=0, took=()):
        heapq.heappush(self.coming, (self.now_ns + int(after_ns), what, number, took))

    def expect(self, number):
        after_ns = self.chance.expovariate(self.loads[number].rate) * SECOND
        if self.is_varied:
            due_ns = self.due_ns[number] = self.due_ns.get(number, self.now_ns) + after_ns
            after_ns = max(0, due_ns - self.now_ns)
        self.push(after_ns, "come", number)

    def tell_where(self):
        """Tell where jobs run: varying request sizes count, and only compare on the same SMs."""
        told = []
        for number, job in self.core.jobs.items() if self.is_varied else ():
            if self.where.get(number) != job.set:
                self.where[number] = job.set
                there = job.set and SmSet(job.set.first, job.set.count, SMS)
                told.append(Usage(process_id=number, following_streams=1, in_set=there))
        if told:
            self.tell(UsageSampled, samples=tuple(told))

    def tell(self, event, **facts):
        for action in self.core.handle(event(now_ns=self.now_ns, **facts)):
            if isinstance(action, FindPlan):
                found = tuple(alternatives(action.scene))
                self.tell(PlanFound, gpus=action.gpus, number=action.number, found=found)

    def answer(self, number):
        job, load = self.core.jobs[number], self.loads[number]
        queue, part = (job.part, job.set), 1.0
        if not self.is_green:
            queue, part = number, self.core.groups[job.group_key].owed_share or 1 / 3
        sms = job.set.count * SMS if job.set else GROUPS * SMS
        size = self.chance.lognormvariate(0, SPREAD[self.is_varied])
        takes_ns = load.takes_ns(sms) / part * size
        begin_ns = max(self.now_ns, self.free_ns.get(queue, 0)) + self.turn_ns(job)
        held_ns = begin_ns - self.now_ns
        if self.is_varied or held_ns < PATIENCE_NS:
            self.under_way[number] += 1
            self.free_ns[queue] = end_ns = int(begin_ns + takes_ns)
            took_ns = end_ns - self.now_ns
            self.push(took_ns, "end", number, (took_ns, held_ns))

    def turn_ns(self, job):
        """Return what is left of the turn of a job without requests on the same SMs."""
        others = (self.core.jobs[n] for n, load in self.loads.items() if not load.rate)
        is_shared = self.is_green and any(other.set == job.set for other in others)
        return int(self.chance.uniform(0, QUANTUM_NS)) if is_shared else 0

    def look(self):
        sizes = {
            number: (job.set, job.part, self.core.groups[job.group_key].tuned_share)
            for number, job in self.core.jobs.items()
        }
        if sizes != self.sizes:
            self.sizes = sizes
            self.changes.append((self.now_ns / SECOND, sizes))
