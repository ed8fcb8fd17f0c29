"""Decisions that look only at what changed are the same as those that look at every group."""

from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from whole_turns import WholeTurns

from tandemd.core.events import (
    CloseGates,
    JobPaused,
    JobResumed,
    OpenGates,
    PolicyChanged,
    ProcessAttached,
    ProcessExited,
    RequestsServed,
    SetHonourPresence,
    SetWindow,
    Ticked,
    UsageSampled,
    WorkClassified,
)
from tandemd.core.model import (
    Bound,
    Group,
    JobClass,
    JobSpec,
    Mix,
    Options,
    Preemption,
    Usage,
    WaitReason,
)
from tandemd.core.policy import POLICIES
from tandemd.core.scheduler import Scheduler
from tandemd.core.settings import Views
from tandemd.core.tuner.latency import RequestKind
from tandemd.core.turns.companions import Pace

MS = 1_000_000


def without_order(action):
    """Make actions comparable: a set of processes has no order."""
    if isinstance(action, OpenGates | CloseGates | SetHonourPresence):
        return (type(action).__name__, sorted(action.process_ids), getattr(action, "honour", None))
    return action


def facts(group: Group) -> tuple[object, ...]:
    """Return the state that a decision leaves in a group."""
    gate = (group.open, group.drained, group.hold_since_ns, group.closed_at_ns)
    waits = [job.gate_waits.counted() for job in group.jobs.values()]
    drains = (group.undrainable, group.drain_failures, group.reopened_steps, group.backlog)
    return (*gate, *waits, group.dozing, *drains)


def cuts(group: Group) -> int:
    """Return how often it lost the turn because of another group."""
    return max((job.preemptions[Preemption.ORDER] for job in group.jobs.values()), default=0)


GAPS_NS = {"brief": MS // 8, "long": 5 * MS}  # that others may expect

CLAIMS = st.lists(
    st.tuples(
        st.integers(0, 7),  # which living process
        st.sampled_from(
            ["busy", "busy", "ends", "waits", "rests", "steps", "wishes", "brief", "long"]
        ),
        st.sampled_from([1, 1, 3, 30]),  # milliseconds before it
    ),
    min_size=4,
    max_size=16,
)


class Twins(RuleBasedStateMachine):
    """Two schedulers hear the same, whatever processes claim, and must answer the same."""

    @initialize(
        policy=st.sampled_from(
            [*sorted(POLICIES), "pair", "pair", "token", "exclusive", "throttle"]
        ),
        alike=st.booleans(),
        min_share=st.sampled_from([0, 0.05]),
        max_hold_ms=st.sampled_from([150, 20_000]),
        several=st.integers(2, 5),
        mps_gpus=st.sampled_from([{0, 1}, {0, 1}, {0}, ()]),
    )
    def begin(self, policy, alike, min_share, max_hold_ms, several, mps_gpus):
        options = Options(
            policy=policy,
            min_share=min_share,
            quantum_ns=5 * MS,
            max_hold_ns=max_hold_ms * MS,
            drain_ns=20 * MS,
            critical_ns=4 * MS,
            nonpreemptible_ns=25 * MS,
            nonpreemptible_classes=frozenset({JobClass.BATCH}),
            share_period_ns=100 * MS,
            mps_gpus=frozenset(mps_gpus),
        )
        self.quick, self.whole = Scheduler(options), Scheduler(options)
        self.now_ns = 0
        self.numbers = 0
        self.windows: dict[int, int] = {}  # as told to processes
        self.living: dict[int, Usage] = {}
        for number in range(several):
            job_class = JobClass.NORMAL if alike else JobClass(1 + number % 3)
            self.attach(job_class=job_class, group="", gpu=0, preemptible=None)
            self.classify(which=number, bound=Bound(1 + number % 4))

    def tell(self, event):
        before = {key: cuts(group) for key, group in self.quick.groups.items()}
        quick = self.quick.handle(event)
        with patch("tandemd.core.turns.rings.Turns", WholeTurns):
            whole = self.whole.handle(event)
        assert [without_order(a) for a in quick] == [without_order(a) for a in whole]
        self.windows |= {a.process_id: a.segments for a in quick if isinstance(a, SetWindow)}
        self.quick.check_invariants()
        self.check_windows()
        for gpus, turns in self.quick.rings.turns.items():
            assert turns.holder == self.whole.rings.turns[gpus].holder
            assert turns.companion == self.whole.rings.turns[gpus].companion
            assert turns.third is None
            self.check_pair(gpus)
            self.check_cuts(turns, before)
            self.check_due(turns)
        for key, group in self.quick.groups.items():
            assert facts(group) == facts(self.whole.groups[key])

    def check_pair(self, gpus):
        """Jobs that share a turn are of one class, and under `pair` of different bounds."""
        pair = [self.quick.rings.turns[gpus].holder, self.quick.rings.turns[gpus].companion]
        if None in pair:
            return
        one, other = (self.quick.groups[key] for key in pair)
        pace = self.quick.policy.companions.pace
        if pace is Pace.FREE:
            assert Bound.UNKNOWN not in (one.bound, other.bound)
            assert one.bound is not other.bound or one.bound is Bound.SMALL
        assert one.job_class is other.job_class is not JobClass.LATENCY
        assert one.gpus | other.gpus <= self.quick.options.mps_gpus

    def check_cuts(self, turns, before):
        """A group that lost the turn within a piece would have ended later than the other."""
        if turns.holder is None:
            return
        holder = self.quick.groups[turns.holder]
        for group in self.quick.groups.values():
            if cuts(group) > before.get(group.key, 0) and group.gpus & holder.gpus:
                policy = self.quick.policy
                assert policy.by_pieces
                assert policy.preempts(holder, group)
                left_ns = [g.piece.left_ns(g.served_ns) for g in (holder, group)]
                assert left_ns[0] < left_ns[1]

    def check_due(self, turns):
        """Under `exclusive`, due work waits for no other work, unless that is owed its share."""
        core = self.quick
        holder = core.groups.get(turns.holder)
        if core.options.policy != "exclusive" or holder is None or turns._breath:
            return
        tier = core.policy.tier(holder)
        if tier == JobClass.LATENCY or turns.overdue(tier) or not holder.wants:
            return
        assert all(core.policy.tier(group) >= tier for group in turns.queue())

    def check_windows(self):
        core = self.quick
        line = core.memory.line
        for members in core.islands.values():
            views = Views(members, policy=core.policy, options=core.options, line=line)
            for group in members:
                windows = {self.windows[process] for process in group.processes}
                assert windows == {views.window_segments(group)}

    @rule(
        job_class=st.sampled_from(JobClass),
        group=st.sampled_from(["", "", "ranks"]),
        gpu=st.sampled_from([0, 0, 1]),
        preemptible=st.sampled_from([None, None, True, False]),
        slo_ms=st.sampled_from([0, 0, 20, 200]),
    )
    def attach(self, job_class, group, gpu, preemptible, slo_ms=0):
        self.numbers += 1
        number = self.numbers
        self.living[number] = Usage(process_id=number)
        spec = JobSpec(
            job_class=job_class, group=group, preemptible=preemptible, slo_p99_ns=slo_ms * MS
        )
        self.tell(
            ProcessAttached(
                now_ns=self.now_ns, process_id=number, job_id=number, uid=1, gpu=gpu, spec=spec
            )
        )

    @rule(which=st.integers(0, 7), bound=st.sampled_from(Bound))
    def classify(self, which, bound):
        if not self.living:
            return
        process = list(self.living)[which % len(self.living)]
        shares = tuple(float(b is bound) for b in Bound)
        mix = Mix(shares=shares, operations=9, untimed=0, at_ns=self.now_ns)
        self.tell(WorkClassified(now_ns=self.now_ns, process_id=process, mix=mix))

    @rule(which=st.integers(0, 7), took_ms=st.lists(st.integers(1, 30), min_size=1, max_size=3))
    def answer(self, which, took_ms):
        if not self.living:
            return
        process = list(self.living)[which % len(self.living)]
        durations_ns = tuple(ms * MS for ms in took_ms)
        self.tell(
            RequestsServed(
                now_ns=self.now_ns,
                process_id=process,
                kind=RequestKind.MARKED,
                durations_ns=durations_ns,
            )
        )

    @rule(claims=CLAIMS)
    def claim(self, claims):
        """Processes report anything, including what no honest process would."""
        for which, what, after_ms in claims:
            if not self.living:
                return
            process = list(self.living)[which % len(self.living)]
            self.now_ns += after_ms * MS
            self.living[process] = usage = claimed(
                self.living[process], what, after_ms, self.now_ns
            )
            self.tell(UsageSampled(now_ns=self.now_ns, samples=(usage,)))
            self.tell(Ticked(now_ns=self.now_ns))

    @rule(
        what=st.sampled_from(["leaves", "paused", "resumed", "policy"]),
        which=st.integers(0, 7),
        policy=st.sampled_from(sorted(POLICIES)),
    )
    def upset(self, what, which, policy):
        if what == "policy":
            self.tell(PolicyChanged(now_ns=self.now_ns, policy=policy))
        elif self.living:
            process = list(self.living)[which % len(self.living)]
            match what:
                case "leaves":
                    del self.living[process]
                    self.tell(ProcessExited(now_ns=self.now_ns, process_id=process))
                case "paused":
                    self.tell(JobPaused(now_ns=self.now_ns, job_id=process))
                case "resumed":
                    self.tell(JobResumed(now_ns=self.now_ns, job_id=process))

    @rule(steps=st.sampled_from([1, 25, 100]), step_ms=st.sampled_from([1, 7, 60]))
    def time_passes(self, steps, step_ms):
        for _ in range(steps):
            self.now_ns += step_ms * MS
            self.tell(Ticked(now_ns=self.now_ns))


def claimed(old: Usage, what: str, after_ms: int, now_ns: int) -> Usage:
    """Return the process's next report."""
    return Usage(
        process_id=old.process_id,
        busy=what in ("busy", "ends", "steps", "wishes"),
        launches=old.launches + (what == "busy"),
        open_segments=max(1, old.open_segments + (1 if what == "busy" else -(what == "ends"))),
        waiting_threads=int(what == "waits"),
        wait_reason=WaitReason.GATE if what == "waits" else WaitReason.NONE,
        exclusive_ns=old.exclusive_ns + (after_ms * MS if old.busy else 0),
        critical_until_ns=now_ns + 3 * MS if what == "wishes" else old.critical_until_ns,
        steps=old.steps + (what == "steps"),
        gap_p50_ns=GAPS_NS.get(what, old.gap_p50_ns),
    )


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=40, stateful_step_count=20)
