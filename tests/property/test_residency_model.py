"""Memory goes where it would go if every decision looked at all processes."""

from dataclasses import replace
from operator import attrgetter
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from moving_jobs import CLAIMS, GIB, MS, Movers

from tandemd.core.events import (
    CloseGates,
    GpuAdded,
    HandleShared,
    JobPaused,
    JobResumed,
    JobUpdated,
    MemoryAudited,
    OpenGates,
    PolicyChanged,
    PoolCopied,
    PoolMade,
    PoolRefused,
    ProcessAttached,
    ProcessExited,
    SetHonourPresence,
    Ticked,
    UsageSampled,
)
from tandemd.core.memory.residency import Residency
from tandemd.core.model import JobClass, JobSpec, Options
from tandemd.core.policy import POLICIES
from tandemd.core.scheduler import Scheduler

INSTANCES = (128, 129)  # of one GPU, so they share one memory
CAPACITY_BYTES = {0: 8 * GIB, 1: 6 * GIB} | dict.fromkeys(INSTANCES, 8 * GIB)


class WholeResidency(Residency):
    """The model: everything counts as changed, always."""

    def review(self, now_ns):
        self.note_all()
        yield from super().review(now_ns)

    def decide(self, now_ns):
        self.note_all()
        return super().decide(now_ns)


def without_order(action):
    """Make actions comparable: a set of processes has no order."""
    if isinstance(action, OpenGates | CloseGates | SetHonourPresence):
        return (type(action).__name__, sorted(action.process_ids), getattr(action, "honour", None))
    return action


OF_GROUP = attrgetter(
    *("open", "drained", "wants", "undrainable", "needs_memory", "misfit_bytes", "notice"),
    *("stall_ns", "fill_ns", "turn_ns"),
)
OF_PLACE = attrgetter(
    *("order", "target_bytes", "reported", "stays_because", "told_bytes", "fixed_until_ns"),
    *("home.pools", "home.spare_since_ns"),
)
OF_CROWD = attrgetter("room_bytes", "claims", "first", "too_much", "host_bytes")


def facts(core):
    """Return the state that a decision leaves behind."""
    residency = core.residency
    return {
        "groups": {key: OF_GROUP(group) for key, group in core.groups.items()},
        "places": {number: OF_PLACE(place) for number, place in residency._places.items()},
        "crowds": {gpus: OF_CROWD(crowd) for gpus, crowd in residency.crowds.items()},
        "stories": {number: sorted(job.story) for number, job in core.jobs.items()},
        "line": (residency.asleep, residency.helped, residency.wake_at_ns),
    }


class Twins(RuleBasedStateMachine):
    """Two schedulers hear the same, whatever processes claim, and must answer the same."""

    @initialize(
        policy=st.sampled_from([*sorted(POLICIES), "fair", "fair"]),
        host_gib=st.sampled_from([0, 3, 8, 100]),
        file_gib=st.sampled_from([0, 0, 4, 100]),
        idle_release_ms=st.sampled_from([0, 0, 40, 2_000]),
        max_hold_ms=st.sampled_from([150, 20_000]),
        several=st.integers(2, 5),
    )
    def begin(self, policy, host_gib, file_gib, idle_release_ms, max_hold_ms, several):
        options = Options(
            policy=policy,
            quantum_ns=5 * MS,
            max_hold_ns=max_hold_ms * MS,
            drain_ns=20 * MS,
            share_period_ns=100 * MS,
            link_bytes_s=1e12,
            host_limit_bytes=host_gib * GIB,
            file_limit_bytes=file_gib * GIB,
            idle_release_ns=idle_release_ms * MS,
        )
        self.quick = Scheduler(options)
        with patch("tandemd.core.scheduler.Residency", WholeResidency):
            self.whole = Scheduler(options)
        self.learn(CAPACITY_BYTES)
        self.now_ns = 1_000 * MS
        self.numbers = 0
        self.movers = Movers()
        for number in range(several):
            self.attach(gpu=0, moves=True, group="", job_class=JobClass.NORMAL, minimum_gib=0)
            self.claim([(number, "grows", 1, 4)])

    def learn(self, capacity_bytes):
        for core in (self.quick, self.whole):
            core.memory.line.capacity_bytes = {**capacity_bytes}

    def tell(self, event):
        quick, whole = self.quick.handle(event), self.whole.handle(event)
        assert [without_order(a) for a in quick] == [without_order(a) for a in whole]
        assert facts(self.quick) == facts(self.whole)
        self.movers.take(quick)

    @rule(
        gpu=st.sampled_from([0, 0, 0, 1, *INSTANCES]),
        moves=st.sampled_from([True, True, True, False]),
        group=st.sampled_from(["", "", "ranks"]),
        job_class=st.sampled_from(JobClass),
        minimum_gib=st.sampled_from([0, 0, 1]),
    )
    def attach(self, gpu, moves, group, job_class, minimum_gib):
        self.numbers += 1
        number = self.numbers
        self.movers.come(number, moves=moves)
        spec = JobSpec(
            job_class=job_class,
            group=group,
            swappable=moves,
            memory_min_bytes=minimum_gib * GIB,
            wait_memory_ns=number % 3 * 10**9,
        )
        self.tell(
            ProcessAttached(
                now_ns=self.now_ns,
                process_id=number,
                job_id=number,
                uid=1,
                gpu=gpu,
                spec=spec,
                takes_files=True,
                gives_back=True,
            )
        )

    @rule(claims=CLAIMS)
    def claim(self, claims):
        """Processes report anything, including what no honest process would."""
        for which, what, after_ms, gib in claims:
            process = self.one_of_the_living(which)
            if process is not None:
                self.now_ns += after_ms * MS
                said = self.movers.says(process, what, after_ms, gib * GIB)
                self.tell(UsageSampled(now_ns=self.now_ns, samples=(said,)))

    def one_of_the_living(self, which):
        living = list(self.movers.living)
        return living[which % len(living)] if living else None

    @rule(which=st.integers(0, 7), what=st.sampled_from(["leaves", "pauses", "resumes", "resumes"]))
    def steer(self, which, what):
        process, now_ns = self.one_of_the_living(which), self.now_ns
        if process is None:
            return
        match what:
            case "leaves":
                self.movers.leave(process)
                self.tell(ProcessExited(now_ns=now_ns, process_id=process))
            case "pauses":
                self.tell(JobPaused(now_ns=now_ns, job_id=process))
            case "resumes":
                self.tell(JobResumed(now_ns=now_ns, job_id=process))

    @rule(
        which=st.integers(0, 7),
        what=st.sampled_from(
            ["minimum", "is refused", "is filled", "is audited", "ties", "spreads"]
        ),
    )
    def upset(self, which, what):
        process, now_ns = self.one_of_the_living(which), self.now_ns
        if process is None:
            return
        match what:
            case "minimum":
                spec = self.quick.jobs[process].spec
                spec = replace(spec, memory_min_bytes=GIB - spec.memory_min_bytes)
                self.tell(JobUpdated(now_ns=now_ns, job_id=process, spec=spec))
            case "is refused":
                move = self.movers.moves.get(process)
                pool = move.order if move is not None else 0
                self.tell(PoolRefused(now_ns=now_ns, process_id=process, pool=pool))
            case "is filled":
                size_bytes, took_ns = (which + 1) * GIB, 10**9
                self.tell(
                    PoolMade(
                        now_ns=now_ns, process_id=process, size_bytes=size_bytes, took_ns=took_ns
                    )
                )
            case "is audited":
                held = ((process, (self.movers.living[process].device_bytes // 2 + GIB,)),)
                self.tell(MemoryAudited(now_ns=now_ns, held_bytes=held, is_complete=True))
            case "ties":
                self.tell(HandleShared(now_ns=now_ns, process_id=process, key=1))
            case "spreads":
                self.tell(GpuAdded(now_ns=now_ns, process_id=process, gpu=process % 2))

    @rule(why_not=st.sampled_from(["", "", "the disk is full"]))
    def copy(self, why_not):
        if self.movers.copies:
            copy = self.movers.copies.pop(0)
            self.tell(
                PoolCopied(
                    now_ns=self.now_ns,
                    process_id=copy.process_id,
                    pool=copy.pool,
                    why_not=why_not,
                )
            )

    @rule(policy=st.sampled_from(sorted(POLICIES)))
    def change_policy(self, policy):
        self.tell(PolicyChanged(now_ns=self.now_ns, policy=policy))

    @rule(gib=st.sampled_from([6, 8, 20]))
    def change_gpu(self, gib):
        self.learn(CAPACITY_BYTES | {0: gib * GIB})
        self.tell(Ticked(now_ns=self.now_ns))

    @rule(steps=st.sampled_from([1, 25]), step_ms=st.sampled_from([1, 7, 60, 4_000]))
    def time_passes(self, steps, step_ms):
        for _ in range(steps):
            self.now_ns += step_ms * MS
            self.tell(Ticked(now_ns=self.now_ns))


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=40, stateful_step_count=25)
