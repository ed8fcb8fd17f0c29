"""Under `throttle`, batch work runs beside normal work at a rate that costs the latter little."""

import random
from dataclasses import dataclass, field

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.events import SetPresence
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options
from tandemd.core.turns import throttle

STEP_MS = 20  # an iteration of the protected job running alone
TICK_MS = 4
TRAINER, LOW, OTHER = 1, 2, 3
MPS = frozenset({0})


@dataclass
class Gpu:
    """Gives its time to all open processes; beside others the trainer runs at `pace`."""

    talk: Talk
    pace: float
    others: tuple[int, ...] = (LOW,)
    marks: bool = True
    step_ms: float = STEP_MS
    gap_ms: int = 0  # the trainer's, after each iteration
    idle: frozenset[int] = frozenset()  # processes without work
    noise: random.Random | None = None  # varies iterations by up to a tenth
    progress_ms: float = 0.0
    steps: int = 0
    got_ms: dict[int, int] = field(default_factory=dict)

    def __post_init__(self):
        self.run(TICK_MS)  # all gates are open until somebody holds the turn

    def run(self, duration_ms):
        """Return how many iterations the trainer ended; `got_ms` has how long others were open."""
        before, self.got_ms = self.steps, dict.fromkeys(self.others, 0)
        for _ in range(0, duration_ms, TICK_MS):
            opened = self.talk.open_processes()
            beside = [o for o in self.others if o in opened and o not in self.idle]
            self._get_on(opened, self.pace if beside else 1.0)
            self.talk.now_ns += TICK_MS * MS
            for process_id in (TRAINER, *self.others):
                self._say(process_id, opened)
            for other in beside:
                self.got_ms[other] += TICK_MS
        return self.steps - before

    def _get_on(self, opened, pace):
        """Advances the trainer; its gap passes whoever has the GPU."""
        if self.progress_ms < 0:
            self.progress_ms += TICK_MS
        elif TRAINER in opened:
            self.progress_ms += TICK_MS * pace
        if self.progress_ms >= self.step_ms:
            self.progress_ms -= self.step_ms + self.gap_ms
            if self.noise:
                self.progress_ms += self.step_ms * self.noise.uniform(-0.1, 0.1)
            self.steps += 1

    def _say(self, process_id, opened):
        is_in_gap = process_id == TRAINER and self.progress_ms < 0
        if is_in_gap or process_id in self.idle:
            steps = {"steps": self.steps} if is_in_gap else {}
            self.talk.sample(process_id, busy=False, waiting_threads=0, **steps)
        elif process_id not in opened:
            self.talk.waits(process_id)
        else:
            self._works(process_id, opened)

    def _works(self, process_id, opened):
        marked = {"steps": self.steps} if self.marks and process_id == TRAINER else {}
        done_ns = self.talk.usages[process_id].exclusive_ns + TICK_MS * MS // len(opened)
        self.talk.sample(process_id, busy=True, waiting_threads=0, exclusive_ns=done_ns, **marked)

    def told(self, job_id):
        found = explain(self.talk.core, self.talk.core.job(job_id), self.talk.now_ns)
        return " | ".join(found.lines)


def gpu(pace, lows=(LOW,), marks=True, **options):
    said = {"policy": "throttle", "mps_gpus": MPS, "min_share": 0.0} | options
    talk = Talk(Options(**said))
    talk.attach(TRAINER, NORMAL)
    for low in lows:
        talk.attach(low, BATCH)
    return Gpu(talk, pace, lows, marks)


@pytest.mark.parametrize("policy", ["priority", "throttle"])
def test_batch_work_that_does_no_harm_runs_beside_and_under_priority_it_waits(policy):
    shared = gpu(1.0, policy=policy)
    shared.run(6_000)

    steps = shared.run(2_000)

    assert steps == 2_000 / STEP_MS
    assert shared.got_ms[LOW] == (2_000 if policy == "throttle" else 0)


def test_what_does_harm_gets_what_loses_as_little_as_is_allowed():
    shared = gpu(0.8)
    shared.run(15_000)

    steps = shared.run(25_000)

    alone = 25_000 / STEP_MS
    assert 0.95 * alone < steps < 0.985 * alone  # the limit of 0.03, and what finding it costs
    ideal_ms = 25_000 * (1 - 1 / 1.03) / (1 - 0.8)
    assert shared.got_ms[LOW] == pytest.approx(ideal_ms, rel=0.4)


def test_where_more_loss_is_allowed_more_runs_beside():
    less, more = (gpu(0.8, throttle_loss=loss) for loss in (0.02, 0.1))
    for shared in (less, more):
        shared.run(20_000)

    assert more.got_ms[LOW] > 3 * less.got_ms[LOW]
    assert more.steps < less.steps


def test_what_stops_the_other_loses_it_no_more_than_that():
    shared = gpu(0.0)
    shared.run(10_000)

    steps = shared.run(20_000)

    assert steps > 0.96 * 20_000 / STEP_MS
    assert 0 < shared.got_ms[LOW] < 0.04 * 20_000


def test_what_the_lower_class_is_owed_it_gets_beside_and_does_not_take_whole():
    beside, whole = (gpu(0.8, min_share=0.1, policy=name) for name in ("throttle", "priority"))
    for shared in (beside, whole):
        shared.run(5_000)

    steps, without = (shared.run(10_000) for shared in (beside, whole))

    assert without == pytest.approx(0.9 * 10_000 / STEP_MS, rel=0.02)
    assert steps > 0.94 * 10_000 / STEP_MS
    assert beside.got_ms[LOW] > 2 * 0.1 * 10_000  # half of that counts


def test_nobody_is_beside_a_job_whose_iterations_are_not_known():
    shared = gpu(1.0, marks=False)
    shared.run(3_000)

    assert shared.got_ms[LOW] == 0
    assert "how long its iterations take without others is not known yet" in shared.told(TRAINER)


def test_harm_that_begins_later_is_seen():
    shared = gpu(1.0)
    shared.run(6_000)
    shared.pace = 0.5
    shared.run(3_000)

    steps = shared.run(10_000)

    assert steps > 0.95 * 10_000 / STEP_MS
    assert shared.got_ms[LOW] < 0.1 * 10_000


@pytest.mark.parametrize("min_share", [0.0, 0.05])
def test_a_job_that_gets_slower_by_itself_is_measured_anew(min_share):
    shared = gpu(1.0, min_share=min_share)
    shared.run(6_000)
    shared.step_ms = 2 * STEP_MS
    shared.run(30_000)

    assert "its iterations take 40 ms alone, 1.00 times that" in shared.told(TRAINER)
    assert shared.got_ms[LOW] > 0.4 * 30_000


def test_a_job_that_gets_faster_by_itself_is_held_to_that():
    shared = gpu(1.0)
    shared.run(6_000)
    shared.step_ms = STEP_MS / 2
    shared.run(2_000)
    shared.pace = 0.5  # back to its first speed
    shared.run(3_000)

    shared.run(3_000)

    assert shared.got_ms[LOW] < 0.2 * 3_000


@pytest.mark.parametrize(("pace", "least", "most"), [(1.0, 0.7, 1.0), (0.5, 0.005, 0.1)])
def test_iterations_that_differ_in_length_do_not_mislead_it(pace, least, most):
    shared = gpu(pace)
    shared.noise = random.Random(1)
    shared.run(10_000)

    steps = shared.run(20_000)

    assert steps > 0.95 * 20_000 / STEP_MS
    assert least * 20_000 < shared.got_ms[LOW] < most * 20_000 + 1


def test_harm_of_one_that_is_seldom_there_is_seen():
    """The job is harmless at first, which opens the throttle for it."""
    shared = gpu(1.0)
    shared.run(6_000)
    shared.pace = 0.0
    for _ in range(30):  # the job is there for a fifth of the time
        shared.idle = frozenset({LOW})
        shared.run(80)
        shared.idle = frozenset()
        shared.run(20)

    shared.idle = frozenset({LOW})
    shared.run(80)
    shared.idle = frozenset()
    steps = shared.run(2_000)

    assert steps > 0.9 * 2_000 / STEP_MS


def test_with_other_equals_it_is_measured_anew():
    shared = gpu(1.0)
    shared.run(6_000)
    assert shared.talk.open_processes() == {TRAINER, LOW}

    shared.talk.attach(OTHER, NORMAL)
    shared.run(100)

    assert shared.talk.open_processes() == {TRAINER}


def test_long_iterations_are_not_measured_alone_for_long(monkeypatch):
    monkeypatch.setattr(throttle, "ANEW_NS", 2_000 * MS)
    shared = gpu(1.0)
    shared.step_ms = 200
    shared.run(10_000)

    shared.run(20_000)

    assert shared.got_ms[LOW] > 0.85 * 20_000


def test_equals_beside_the_holder_take_turns():
    shared = gpu(1.0, lows=(LOW, OTHER))
    shared.run(8_000)

    shared.run(1_000)

    assert shared.got_ms[LOW] == pytest.approx(shared.got_ms[OTHER], rel=0.1)
    assert sum(shared.got_ms.values()) > 600  # one after the other; each hand-over takes a tick


def test_it_is_measured_alone_again_once_in_a_while(monkeypatch):
    monkeypatch.setattr(throttle, "ANEW_NS", 8_000 * MS)
    shared = gpu(1.0)
    shared.run(8_000)
    assert shared.talk.open_processes() == {TRAINER, LOW}

    shared.run(2_000)

    window_ms = throttle.WINDOW_NS / MS
    assert shared.got_ms[LOW] == pytest.approx(2_000 - window_ms, abs=2 * STEP_MS)
    assert shared.talk.open_processes() == {TRAINER, LOW}


def test_what_equals_have_of_the_time_is_no_harm():
    talk = Talk(Options(policy="throttle", mps_gpus=MPS, min_share=0.0))
    for process_id, job_class in ((TRAINER, NORMAL), (OTHER, NORMAL), (LOW, BATCH)):
        talk.attach(process_id, job_class)
    shared = Gpu(talk, 1.0, (LOW, OTHER))
    shared.idle = frozenset({OTHER})
    shared.run(8_000)
    shared.idle = frozenset()
    shared.run(3_000)

    own_ms = shared.run(4_000) * STEP_MS

    assert own_ms + shared.got_ms[OTHER] == pytest.approx(4_000, rel=0.2)  # a tick per hand-over
    assert shared.got_ms[OTHER] > 1_000  # it marks no iterations, so nobody runs beside it
    assert shared.got_ms[LOW] == pytest.approx(own_ms, rel=0.1)


@pytest.mark.parametrize(("gpus", "seen"), [(MPS, {LATENCY}), (frozenset(), {LATENCY, NORMAL})])
def test_batch_looks_only_at_whom_it_may_not_run_beside(gpus, seen):
    talk = Talk(Options(policy="throttle", mps_gpus=gpus))
    classes = {1: LATENCY, 2: NORMAL}
    for process_id, job_class in classes.items():
        talk.attach(process_id, job_class)
        talk.map(process_id)
    talk.attach(3, BATCH)

    (action,) = talk.of(SetPresence, 3)

    assert {classes[process_id] for process_id in action.looks_at} == seen


def test_explain_says_how_much_may_run_beside_it_and_why():
    shared = gpu(0.8)
    shared.run(8_000)

    told = shared.told(TRAINER)

    assert "lower classes may run beside it" in told
    assert "its iterations take 20 ms alone, 1.0" in told
    assert "up to 1.03 times is allowed" in told
    assert "batch beside normal, at a rate that costs it little" in shared.told(LOW)
    assert "batch jobs of its user may run beside j-1 " in shared.told(LOW)
    assert "% of the time, and whenever that job has nothing on the gpu" in shared.told(LOW)


def test_explain_says_nothing_of_turns_with_a_latency_job_which_takes_none():
    shared = gpu(0.8)
    shared.talk.attach(OTHER, LATENCY)
    shared.run(2_000)

    assert "turns" not in shared.told(OTHER)
    assert "turns with j-3" not in shared.told(TRAINER)
    assert "turns with j-2" in shared.told(TRAINER)


def test_explain_says_nothing_of_batch_work_beside_a_job_of_which_nothing_is_known():
    shared = gpu(0.8, marks=False)
    shared.run(2_000)

    assert "batch jobs of its user may run beside" not in shared.told(LOW)


def test_explain_says_that_a_job_is_measured_again_once_others_have_come():
    shared = gpu(1.0)
    shared.run(2_000)
    shared.talk.attach(OTHER, NORMAL)
    shared.talk.works(OTHER)

    assert "without others is measured again; it was 20 ms" in shared.told(TRAINER)


def test_explain_tells_batch_jobs_of_a_job_that_is_measured_again():
    shared = gpu(1.0)
    shared.run(2_000)
    shared.talk.attach(OTHER, NORMAL)
    shared.run(5)

    assert "no batch job runs beside j-1, whose iterations are measured again" in shared.told(LOW)
    assert "batch jobs of its user may run beside" not in shared.told(LOW)


def test_explain_says_that_min_share_is_why_the_part_is_no_smaller():
    harmed, spared = gpu(0.1, min_share=0.05), gpu(0.1)
    harmed.run(800)
    assert "beside it 5% of its time: its" in harmed.told(TRAINER)  # nothing has been measured yet
    for shared in (harmed, spared):
        shared.run(8_000)

    assert "beside it 11% of its time, as required by min_share: its" in harmed.told(TRAINER)
    assert "min_share" not in spared.told(TRAINER)


def test_gaps_of_the_protected_job_are_the_others_and_no_harm():
    shared = gpu(0.0)
    shared.gap_ms = STEP_MS
    shared.run(8_000)

    steps = shared.run(8_000)

    lost = 1 - steps * (STEP_MS + shared.gap_ms) / 8_000
    assert lost < 0.2  # hand-overs take two of an iteration's ten ticks
    assert shared.got_ms[LOW] > 0.3 * 8_000
    assert "its iterations take" in shared.told(TRAINER)
    assert "100% of its time" not in shared.told(TRAINER)


def test_what_was_hardly_used_says_nothing_of_more():
    shared = gpu(1.0)
    for _ in range(8):
        shared.idle = frozenset({LOW})
        shared.run(792)
        shared.idle = frozenset()
        shared.run(2 * TICK_MS)

    assert "may run beside it 5% of its time" in shared.told(TRAINER)


def test_who_ends_no_iteration_when_it_is_to_be_measured_again_is_known_as_before(monkeypatch):
    monkeypatch.setattr(throttle, "ANEW_NS", 6_000 * MS)
    monkeypatch.setattr(throttle, "PATIENCE_NS", 1_000 * MS)
    shared = gpu(1.0)
    shared.run(6_600)
    assert shared.talk.open_processes() == {TRAINER}

    shared.marks = False
    shared.run(1_200)

    assert shared.talk.open_processes() == {TRAINER, LOW}


def test_a_decision_is_due_when_the_bucket_is_full_and_when_it_is_empty():
    core = gpu(1.0).talk.core
    low, trainer = (core.groups[core.job(job).group_key] for job in (LOW, TRAINER))
    low.open = trainer.open = True
    options, bucket = Options(quantum_ns=10 * MS), throttle.Throttle()
    bucket.note(trainer, None, 0)
    ward = bucket.ward(trainer)
    ward.alone_ns, ward.due_ns, ward.share = 20.0 * MS, 1_000_000 * MS, 0.2

    filled_ns = bucket.wake_ns(options, 0)
    bucket.settle(options, filled_ns)
    bucket.note(trainer, low, filled_ns)
    ward.credit_ns /= 2
    emptied_ns = bucket.wake_ns(options, filled_ns)
    bucket.settle(options, emptied_ns)

    assert filled_ns == pytest.approx(10 * MS / 0.2, rel=0.01)
    assert emptied_ns - filled_ns == pytest.approx(5 * MS / (1 - 0.2), rel=0.01)
    assert not bucket.lets_join(trainer, emptied_ns)


@pytest.mark.parametrize("lack", [{"stall_ns": MS}, {"needs_memory": True}])
def test_nobody_whose_memory_has_to_come_first_runs_beside(lack):
    shared = gpu(1.0)
    groups = [shared.talk.core.groups[shared.talk.core.job(j).group_key] for j in (LOW, TRAINER)]
    companions, options = shared.talk.core.policy.companions, shared.talk.core.options
    assert companions.may_join(*groups, options)

    for name, value in lack.items():
        setattr(groups[0], name, value)

    assert not companions.may_join(*groups, options)
    assert "not all of it fits at once" in companions.judge(*groups, options).why


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mps_gpus": frozenset()}, "kernels of two processes overlap only under mps"),
        ({}, "under mps only jobs of one user run side by side"),
    ],
)
def test_who_may_not_run_beside_takes_turns(options, why):
    said = {"policy": "throttle", "mps_gpus": MPS, "min_share": 0.0} | options
    talk = Talk(Options(**said))
    talk.attach(TRAINER, NORMAL, uid=1000)
    talk.attach(LOW, BATCH, uid=1001 if not options else 1000)
    shared = Gpu(talk, 1.0)
    shared.run(3_000)

    assert shared.got_ms[LOW] == 0
    assert why in shared.told(LOW)
