"""GPUs divided by plan amid random events: parts, sets and turns never contradict each other."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tandemd.core.events import (
    FindPlan,
    JobUpdated,
    PlanFound,
    ProcessAttached,
    ProcessExited,
    RequestsServed,
    ScalingTold,
    Ticked,
    UsageSampled,
)
from tandemd.core.model import JobClass, JobSpec, Options, Split, Usage
from tandemd.core.planner.planner import alternatives
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.scaling import Curve
from tandemd.core.tuner.latency import RequestKind

MS = 1_000_000
HERE = frozenset({0})
GROUPS, SMS = 6, 8


def curve(knee, ms):
    counts = tuple(range(SMS, GROUPS * SMS + 1, SMS))
    times = tuple(int(ms * MS * max(1.0, knee * SMS / sms)) for sms in counts)
    return Curve(sm_counts=counts, iteration_ns=times, recorded_sms=48, recorded_ns=times[-1])


class DivisionsModel(RuleBasedStateMachine):
    """Plans are found at once, late, or not at all."""

    @initialize(tuner=st.booleans(), policy=st.sampled_from(["fair", "priority", "pair", "fifo"]))
    def begin(self, tuner, policy):
        options = Options(
            policy=policy,
            planner=True,
            tuner=tuner,
            tuner_window_ns=100 * MS,
            mps_gpus=HERE,
            splits={0: Split(groups=GROUPS, group_sms=SMS)},
            sm_counts={0: GROUPS * SMS},
            quantum_ns=5 * MS,
        )
        self.core, self.now_ns, self.numbers = Scheduler(options), 0, 0
        self.living: dict[int, Usage] = {}
        self.questions: list[FindPlan] = []

    def tell(self, event):
        actions = self.core.handle(event)
        self.questions += [action for action in actions if isinstance(action, FindPlan)]

    def one(self, which):
        return list(self.living)[which % len(self.living)]

    @precondition(lambda self: len(self.living) < 5)
    @rule(
        job_class=st.sampled_from(JobClass),
        sm_percent=st.sampled_from([0, 0, 0, 30, 100]),
        slo_ms=st.sampled_from([0, 0, 30]),
        swappable=st.sampled_from([False] * 9 + [True]),
        uid=st.sampled_from([1000] * 9 + [1001]),
        group=st.sampled_from([""] * 9 + ["both"]),
    )
    def attach(self, job_class, sm_percent, slo_ms, swappable, uid, group):
        self.numbers += 1
        self.living[self.numbers] = Usage(process_id=self.numbers)
        spec = JobSpec(
            job_class=job_class,
            sm_percent=sm_percent,
            slo_p99_ns=slo_ms * MS,
            swappable=swappable,
            group=group,
        )
        self.tell(
            ProcessAttached(
                now_ns=self.now_ns,
                process_id=self.numbers,
                job_id=self.numbers,
                uid=uid,
                gpu=0,
                spec=spec,
                takes_files=True,
                gives_back=True,
            )
        )

    @precondition(lambda self: self.living)
    @rule(which=st.integers(0, 4))
    def leave(self, which):
        process_id = self.one(which)
        del self.living[process_id]
        self.tell(ProcessExited(now_ns=self.now_ns, process_id=process_id))

    @precondition(lambda self: self.living)
    @rule(which=st.integers(0, 4), sm_percent=st.sampled_from([0, 50]))
    def say(self, which, sm_percent):
        spec = JobSpec(sm_percent=sm_percent)
        self.tell(JobUpdated(now_ns=self.now_ns, job_id=self.one(which), spec=spec))

    @precondition(lambda self: self.living)
    @rule(which=st.integers(0, 4), knee=st.integers(1, GROUPS), ms=st.sampled_from([2, 10]))
    def learn(self, which, knee, ms):
        told = ScalingTold(
            now_ns=self.now_ns, process_id=self.one(which), curve=curve(knee, ms), doubt=""
        )
        self.tell(told)

    @precondition(lambda self: self.living)
    @rule(which=st.integers(0, 4), ms=st.sampled_from([2, 50]))
    def serve(self, which, ms):
        served = RequestsServed(
            now_ns=self.now_ns,
            process_id=self.one(which),
            kind=RequestKind.MARKED,
            durations_ns=(ms * MS,) * 25,
        )
        self.now_ns += 25 * ms * MS
        self.tell(served)

    @precondition(lambda self: self.living)
    @rule(
        which=st.integers(0, 4),
        busy=st.booleans(),
        waits=st.booleans(),
        ran_ms=st.integers(0, 9),
        staying=st.sampled_from([0] * 4 + [1]),
    )
    def work(self, which, busy, waits, ran_ms, staying):
        process_id = self.one(which)
        usage = Usage(
            process_id=process_id,
            busy=busy,
            waiting_threads=int(waits),
            exclusive_ns=self.living[process_id].exclusive_ns + ran_ms * MS,
            staying_streams=(staying, 0, 0, 0, 0, 0),
        )
        self.living[process_id] = usage
        self.tell(UsageSampled(now_ns=self.now_ns, samples=(usage,)))

    @rule(after_ms=st.sampled_from([1, 50, 120]))
    def tick(self, after_ms):
        self.now_ns += after_ms * MS
        self.tell(Ticked(now_ns=self.now_ns))

    @precondition(lambda self: self.questions)
    @rule(which=st.integers(0, 4), works=st.sampled_from([True, True, False]))
    def answer(self, which, works):
        question = self.questions.pop(which % len(self.questions))
        found = tuple(alternatives(question.scene)) if works else ()
        event = PlanFound(
            now_ns=self.now_ns, gpus=question.gpus, number=question.number, found=found
        )
        self.tell(event)

    @invariant()
    def nothing_is_broken(self):
        if hasattr(self, "core"):
            self.core.check_invariants()

    @invariant()
    def parts_are_of_those_who_are_there_and_no_more_than_there_is(self):
        for division in self.divisions():
            names = [name for part in division.plan for name in part.members]
            here = {job.display_name for job in self.core.jobs.values() if job.processes}
            assert len(names) == len(set(names))
            assert division.why_not or set(names) in (here, set())  # why_not: nobody goes by it
            assert sum(part.groups for part in division.plan) <= GROUPS
            assert all(part.groups >= 1 for part in division.plan)

    @invariant()
    def those_of_one_part_share_a_set_and_others_have_none_of_it(self):
        jobs = [job for job in getattr(self, "core", Scheduler()).jobs.values() if job.part]
        probed = {job.part for job in jobs if self.is_probed(job)}
        for one in jobs:
            for other in jobs:
                if one is other or {one.part, other.part} & probed or not (one.set and other.set):
                    continue
                if one.part == other.part:
                    assert one.set == other.set
                else:
                    assert not one.set.overlap(other.set)

    @invariant()
    def who_takes_turns_is_told_by_the_parts(self):
        if not hasattr(self, "core"):
            return
        for (_, part), members in self.core.rings.members.items():
            assert {max(j.part for j in group.jobs.values()) for group in members} == {part}

    def is_probed(self, job):
        division = self.core.divisions.of(job)
        part = division.part_of(job.display_name) if division else None
        return part is not None and part.groups != job.groups_wanted

    def divisions(self):
        return self.core.divisions.by_island.values() if hasattr(self, "core") else ()


TestDivisionsModel = DivisionsModel.TestCase
TestDivisionsModel.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
