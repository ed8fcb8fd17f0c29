"""Conversations that test the planner within the scheduler: plans in, parts and turns out."""

from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk, run

from tandemd.core.events import FindPlan, PlanFound, RequestsServed, ScalingTold
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options, Split
from tandemd.core.planner.kept_plans import Tally
from tandemd.core.planner.planner import WINDOWS, alternatives
from tandemd.core.planner.plans import Worker
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sets import Span
from tandemd.core.tuner.latency import MOST, RequestKind

WINDOW_MS = 1000
HERE = frozenset({0})
GREEN = Options(
    policy="fair",
    planner=True,
    tuner_window_ns=WINDOW_MS * MS,
    quantum_ns=5 * MS,
    mps_gpus=HERE,
    splits={0: Split(groups=8, group_sms=16)},
    sm_counts={0: 128},
    probe_sets=False,
)


def curve(iteration_ms, knee):
    """As fast on `knee` groups as on all eight, and proportionally slower on fewer."""
    counts = tuple(range(16, 129, 16))
    times = tuple(int(iteration_ms * MS * max(1.0, knee * 16 / sms)) for sms in counts)
    return Curve(sm_counts=counts, iteration_ns=times, recorded_sms=128, recorded_ns=times[-1])


class Planned(Talk):
    """Answers questions for plans as the loop does, unless `answers` is cleared."""

    answers = True

    def say(self, event):
        actions = super().say(event)
        for question in self.of(FindPlan) if self.answers else ():
            answer = PlanFound(
                now_ns=self.now_ns,
                gpus=question.gpus,
                number=question.number,
                found=tuple(alternatives(question.scene)),
            )
            actions = [*actions, *super().say(answer)]
        self.actions = actions
        return actions

    def come(self, process_id, job_class=NORMAL, *, ms=10, knee=8, **spec):
        """Attaches a job whose curve is already known."""
        self.attach(process_id, job_class, **spec)
        self.tell(process_id, ms=ms, knee=knee)

    def tell(self, process_id, *, ms, knee):
        told = curve(ms, knee)
        event = ScalingTold(now_ns=self.now_ns, process_id=process_id, curve=told, doubt="")
        self.say(event)

    def windows(self, count=1):
        for _ in range(count):
            self.tick(after_ms=WINDOW_MS)

    def serves(self, process_id, *durations_ms, kind=RequestKind.MARKED):
        for duration_ms in durations_ms:
            self.now_ns += int(duration_ms * MS)
            ended = RequestsServed(
                now_ns=self.now_ns,
                process_id=process_id,
                kind=kind,
                durations_ns=(int(duration_ms * MS),),
            )
            self.say(ended)

    @property
    def parts(self):
        """Maps the jobs of each part to its number of groups."""
        division = self.core.divisions.by_island[HERE]
        return {part.members: part.groups for part in division.plan}

    @property
    def sets(self):
        return {job_id: job.set for job_id, job in self.core.jobs.items()}

    def lines(self, job_id):
        return " | ".join(explain(self.core, self.core.jobs[job_id], self.now_ns).lines)


def three(options=GREEN):
    """One large job, and two small ones that need two groups each for their objectives."""
    talk = Planned(options)
    talk.come(1, knee=6)
    talk.come(2, ms=4, knee=2, slo_p99_ns=10 * MS)
    talk.come(3, ms=4, knee=2, slo_p99_ns=10 * MS)
    for _ in range(12):
        for server in (2, 3):
            talk.serves(server, 4)
        talk.now_ns += 100 * MS
    talk.windows(WINDOWS + 1)
    return talk


def test_jobs_are_placed_as_planned_and_those_of_one_part_share_its_set():
    talk = three()

    assert talk.parts == {("j-1",): 6, ("j-2", "j-3"): 2}
    assert talk.sets[1].count == 6
    assert talk.sets[2] == talk.sets[3]
    assert talk.sets[2].count == 2
    assert not talk.sets[1].overlap(talk.sets[2])


def test_without_the_planner_sizes_are_those_of_the_knees_and_nobody_shares_a_set():
    talk = three(replace(GREEN, planner=False))

    assert len({span.first for span in talk.sets.values()}) == 3
    assert not talk.core.divisions.by_island
    assert "plan:" not in talk.lines(1)


def test_those_of_one_part_take_turns_and_those_of_others_do_not():
    talk = three()
    for process_id in (1, 2, 3):
        talk.waits(process_id)
    talk.works(1)

    assert talk.is_open(1)
    assert sum(talk.is_open(server) for server in (2, 3)) == 1

    without = three(replace(GREEN, planner=False))
    for process_id in (1, 2, 3):
        without.waits(process_id)
    assert len(without.open_processes()) == 1  # all three share one ring of turns


def test_kernels_of_those_who_take_turns_never_run_at_once_and_so_can_be_recorded():
    talk = three()
    at_once = {
        job_id: {other.job_id for other in talk.core.others_at_once(job)}
        for job_id, job in talk.core.jobs.items()
    }
    assert at_once == {1: {2, 3}, 2: {1}, 3: {1}}

    talk.policy("priority")
    talk.update(3, job_class=LATENCY, slo_p99_ns=10 * MS)

    assert talk.core.jobs[3] in talk.core.others_at_once(talk.core.jobs[2])


def test_an_answer_to_a_question_of_those_who_have_gone_is_not_taken_for_another():
    talk = Planned(GREEN)
    talk.answers = False
    talk.attach(1)
    (old,) = talk.of(FindPlan)
    talk.leave(1)
    talk.attach(2)

    found = tuple(alternatives(old.scene))
    talk.say(PlanFound(now_ns=talk.now_ns, gpus=HERE, number=old.number, found=found))

    assert talk.parts == {}


def test_who_comes_takes_turns_in_the_largest_part_until_there_is_a_plan():
    talk = three()
    before, talk.answers = talk.sets, False

    talk.attach(4, BATCH)

    assert talk.parts == {("j-1", "j-4"): 6, ("j-2", "j-3"): 2}
    assert talk.sets == before | {4: before[1]}
    talk.waits(1)
    talk.waits(4)
    talk.works(1)
    assert talk.is_open(1)
    assert not talk.is_open(4)


def side_by_side(options=GREEN, **spec):
    """One job has five groups, and the other three."""
    talk = Planned(options)
    talk.attach(1, **spec)
    talk.tell(1, ms=10, knee=5)
    talk.come(2, knee=3)
    talk.windows(WINDOWS + 1)
    assert talk.parts == {("j-1",): 5, ("j-2",): 3}
    return talk


def test_what_a_job_got_in_a_part_of_its_own_is_no_debt_where_parts_become_one():
    talk = side_by_side()
    for _ in range(100):
        talk.works(1, after_ms=100, ran_ms=100)
    talk.works(2, ran_ms=100)
    talk.attach(3, uid=1001)  # from another user, so all take turns
    assert len(talk.core.rings.members) == 1

    got = run(talk, {1, 2}, duration_ms=1000)

    assert got[1] == pytest.approx(got[2], rel=0.1)


def test_who_did_not_drain_on_few_sms_takes_turns_again_on_more():
    talk = side_by_side()
    on_more, on_as_many = (talk.core.groups[1000, f"j:{number}"] for number in (1, 2))
    for group, then in ((on_more, 4), (on_as_many, 3)):
        group.undrainable, group.undrainable_on = True, then

    talk.attach(3)  # all jobs are placed anew

    assert (on_more.undrainable, on_as_many.undrainable) == (False, True)
    assert "it takes turns again" in " ".join(line for _, line in talk.core.jobs[1].story)


def answered(talk):
    """Answers the newest question only."""
    division = talk.core.divisions.by_island[HERE]
    found = tuple(alternatives(division.seen.scene))
    number = division.asked
    talk.say(PlanFound(now_ns=talk.now_ns, gpus=HERE, number=number, found=found))


def test_who_leaves_and_is_back_before_the_answer_has_its_part_again():
    talk = Planned(GREEN)
    talk.register(1)
    talk.attach(1)
    talk.tell(1, ms=10, knee=5)
    talk.come(2, knee=3)
    talk.windows(WINDOWS + 1)
    before, talk.answers = talk.parts, False

    talk.leave(1)
    talk.attach(11, job_id=1)
    talk.tell(11, ms=10, knee=5)
    assert len(talk.parts) == 1
    answered(talk)

    assert talk.parts == before == {("j-1",): 5, ("j-2",): 3}


def test_a_plan_is_in_force_again_when_what_stood_against_it_is_over_before_an_answer():
    talk = side_by_side()
    before, talk.answers = talk.parts, False

    talk.attach(3, uid=1001)
    assert talk.parts == {}
    talk.leave(3)
    answered(talk)

    assert talk.parts == before
    assert len(talk.core.rings.members) == 2


def test_where_all_take_turns_who_said_a_size_has_no_set_of_its_own():
    talk = side_by_side()

    talk.come(3, sm_percent=100)

    assert talk.parts == {("j-1", "j-2", "j-3"): 8}
    assert set(talk.sets.values()) == {Span(0, 8)}


def test_a_process_that_follows_asks_for_no_set_where_all_take_turns():
    talk = side_by_side()
    talk.come(3, sm_percent=100)

    talk.attach(4, job_id=3, sm_percent=100)

    assert set(talk.sets.values()) == {Span(0, 8)}


@pytest.mark.parametrize("percent", [25, 100])
def test_who_said_a_size_asks_for_it_again_when_nobody_goes_by_plans_any_more(percent):
    talk = side_by_side()
    talk.answers = False
    talk.come(3, sm_percent=percent)

    talk.attach(4, uid=1001)
    assert talk.core.jobs[3].groups_wanted == 8 * percent // 100

    talk.leave(4)
    talk.core.change_options(replace(GREEN, planner=False), now_ns=talk.now_ns)
    assert talk.core.jobs[3].groups_wanted == 8 * percent // 100


def test_what_no_plan_depends_on_is_no_reason_to_look():
    talk = side_by_side()
    asked = talk.core.divisions.by_island[HERE].asked

    talk.update(1, memory_bytes=1 << 30)
    assert talk.core.divisions.by_island[HERE].asked == asked

    talk.update(1, memory_bytes=1 << 30, job_class=BATCH)
    assert talk.core.divisions.by_island[HERE].asked == asked + 1


def test_an_answer_to_an_older_question_is_of_no_use():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.answers = False
    talk.attach(2)
    (question,) = talk.of(FindPlan)
    talk.leave(1)
    before = talk.parts

    found = tuple(alternatives(question.scene))
    talk.say(PlanFound(now_ns=talk.now_ns, gpus=HERE, number=question.number, found=found))

    assert talk.parts == before
    assert [name for members in talk.parts for name in members] != ["j-1", "j-2"]


def test_who_goes_leaves_its_groups_to_the_others_at_once():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.come(2, knee=4)
    talk.windows(WINDOWS + 1)
    assert talk.parts == {("j-1",): 4, ("j-2",): 4}

    talk.leave(2)

    assert talk.sets == {1: Span(0, 8)}


def test_a_better_plan_is_gone_by_after_some_windows_and_not_before():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.come(2, knee=4)
    talk.windows(WINDOWS + 1)
    talk.tell(1, ms=10, knee=6)
    talk.tell(2, ms=10, knee=2)

    talk.windows(WINDOWS - 1)
    assert talk.parts == {("j-1",): 4, ("j-2",): 4}
    talk.windows()

    assert talk.parts == {("j-1",): 6, ("j-2",): 2}
    told = " | ".join(line for _, line in talk.core.jobs[1].story)
    assert (
        "planned: 6 groups of SMs of its own: it promises 2.00 of progress by weight, not" in told
    )


def test_what_a_person_said_stays_and_counts_at_once():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.come(2, knee=4)
    talk.windows(WINDOWS + 1)

    talk.update(1, sm_count=16)

    assert talk.parts == {("j-1",): 1, ("j-2",): 7}
    assert talk.sets[1].count == 1


def test_sizes_that_persons_said_leave_the_rest_to_who_comes_next():
    talk = Planned(GREEN)
    talk.come(1, sm_percent=25)
    assert talk.parts == {("j-1",): 2}
    assert talk.sets[1].count == 2

    talk.come(2, sm_count=48)
    assert talk.parts == {("j-1",): 2, ("j-2",): 3}
    assert len(talk.core.rings.members) == 2  # the two jobs take no turns

    talk.come(3)
    assert talk.parts == {("j-1",): 2, ("j-2",): 3, ("j-3",): 3}


def test_from_now_on_without_the_planner_all_is_as_it_would_be_without_it():
    talk = three()
    options = replace(talk.core.options, planner=False, size_sets=False)

    talk.core.change_options(options, now_ns=talk.now_ns)

    assert set(talk.sets.values()) == {Span(0, 8)}
    assert len(talk.core.rings.members) == 1
    talk.core.change_options(replace(options, size_sets=True), now_ns=talk.now_ns)
    assert len(set(talk.sets.values())) == 3


def said(talk, job_id=1):
    return next(line for line in talk.lines(job_id).split(" | ") if line.startswith("plan: "))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mps_gpus": frozenset(), "splits": {}}, "in mode time, a plan in space needs mode mps"),
        ({"splits": {}}, "in mode mps, a plan in space needs jobs to be restarted"),
        ({"policy": "lanes"}, "under lanes the policy itself decides"),
        ({"swappable_classes": frozenset({NORMAL})}, "memory of j-1 may be moved to the host"),
    ],
)
def test_where_something_keeps_them_from_running_side_by_side_all_take_turns(options, why):
    talk = Planned(replace(GREEN, **options))
    talk.come(1, knee=4)
    talk.come(2, knee=4)
    talk.windows(WINDOWS + 1)

    assert said(talk) == f"plan: time, all take turns: {said(talk).partition('turns: ')[2]}"
    assert why in said(talk)
    assert len(talk.core.rings.members) == 1
    assert {job.part for job in talk.core.jobs.values()} == {0}


def test_no_mode_is_named_to_jobs_of_several_users_that_helps_none_of_them():
    talk = Planned(replace(GREEN, mps_gpus=frozenset(), splits={}))
    talk.come(1, knee=4, uid=1)
    talk.come(2, knee=4, uid=2)
    talk.windows(WINDOWS + 1)

    assert "only jobs of one user run side by side" in said(talk)
    assert "needs mode mps" not in said(talk)


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        ([{"uid": 1}, {"uid": 2}], "only jobs of one user run side by side"),
        ([{"group": "both"}, {"group": "both"}], "are one group, and run as one"),
    ],
)
def test_jobs_that_cannot_run_side_by_side_take_turns(jobs, why):
    talk = Planned(GREEN)
    for number, job in enumerate(jobs, 1):
        talk.come(number, knee=4, **job)
    talk.windows(WINDOWS + 1)

    assert why in said(talk)
    assert len(talk.core.rings.members) == 1


def test_where_streams_stay_on_the_whole_gpu_all_take_turns_on_all_of_it():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.come(2, knee=4)
    talk.windows(WINDOWS + 1)
    assert len(talk.core.rings.members) == 2

    talk.sample(1, staying_streams=(1, 0, 0, 0, 0, 0))
    talk.windows()

    for job_id in (1, 2):
        told = "plan: time: all take turns on all SMs, because work of j-1 stays on the whole gpu"
        assert told in said(talk, job_id)
    assert len(talk.core.rings.members) == 1
    assert talk.sets == {1: Span(0, 8), 2: Span(0, 8)}

    talk.sample(1, staying_streams=(0, 0, 0, 0, 0, 0))
    talk.windows()
    assert talk.parts == {("j-1",): 4, ("j-2",): 4}


def test_who_asks_for_a_size_has_no_set_while_streams_of_another_stay_on_the_whole_gpu():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.come(2, sm_percent=25)
    talk.sample(1, staying_streams=(1, 0, 0, 0, 0, 0))
    talk.windows()
    assert talk.sets == {1: Span(0, 8), 2: Span(0, 8)}

    talk.leave(1)
    assert talk.sets[2].count == 2


@pytest.mark.parametrize(("slow_ms", "stays"), [(8, True), (30, False)])
def test_a_plan_is_not_left_for_an_objective_that_is_kept_as_measured(slow_ms, stays):
    """By its curve, which differs, the job would miss its objective on the SMs that it has."""
    talk = Planned(GREEN)
    talk.come(1, ms=100)
    talk.come(2, ms=8, knee=2, slo_p99_ns=25 * MS)

    def serve():
        for took_ms in (8,) * 9 + (slow_ms,):
            talk.serves(2, took_ms)
            talk.now_ns += 100 * MS

    serve()
    talk.windows(WINDOWS)
    before = talk.parts
    talk.tell(2, ms=8, knee=4)
    for _ in range(WINDOWS + 1):
        serve()
        talk.windows()

    assert "plan: progress" in talk.lines(2)
    assert (talk.parts == before) is stays


def test_explain_says_what_is_foretold_and_measured_and_why_not_otherwise():
    talk = three()
    for _ in range(20):
        talk.serves(2, 4)
        talk.now_ns += 100 * MS
    talk.sample(1, iterations=300)

    large, server = talk.lines(1), talk.lines(2)

    assert "plan: time and space: 96 SMs of its own, because " in large
    assert "plan: time and space: 32 SMs, in turns with j-3, because " in server
    assert (
        "plan: beside the jobs on other SMs, iterations should take 1.00 times as long, and"
        in large
    )
    assert "plan: not time: it would miss 2 objectives, and this one none" in large
    assert "plan: not space: it promises " in large
    assert "plan: progress 1.00 is predicted and " in large
    assert "ms is predicted and 4.0 ms measured" in server


def test_explain_says_that_a_plan_was_taken_since_it_is_fairer():
    talk = Planned(GREEN)
    for job_id, knee in ((1, 8), (2, 8), (3, 7.7)):
        talk.come(job_id, knee=knee)

    told = talk.lines(1)

    assert "plan: time: all take turns on all SMs" in told
    assert (
        "plan: not space: it promises 1.01 of progress by weight, and this one 1.00; but the job "
        "that gets least for its weight would get 0.26, and here 0.33" in told
    )


def test_explain_answers_while_another_plan_is_looked_for_since_a_job_has_gone():
    talk = Planned(GREEN)
    for job_id, knee in ((1, 8), (2, 8), (3, 7.7)):
        talk.come(job_id, knee=knee)
    before, division = talk.lines(1), talk.core.divisions.by_island[HERE]

    scene = division.seen.scene
    left = {name: scene.workers[name] for name in ("j-1", "j-2")}
    division.seen = replace(division.seen, scene=replace(scene, workers=left))

    assert talk.lines(1) == before


def test_what_is_measured_under_a_plan_is_of_requests_of_one_kind():
    talk = three()
    division = talk.core.divisions.by_island[HERE]

    talk.serves(2, *[40] * 20, kind=RequestKind.BURST)
    assert 40 * MS not in division.tally.durations_ns.get("j-2", ())

    other = side_by_side(slo_p99_ns=1000 * MS)
    tally = other.core.divisions.by_island[HERE].tally
    other.serves(1, *[40] * 20, kind=RequestKind.BURST)
    assert len(tally.durations_ns["j-1"]) == 20
    other.serves(1, 4)
    assert list(tally.durations_ns["j-1"]) == [4 * MS]


def test_the_newest_requests_under_a_plan_are_those_that_are_measured():
    talk = side_by_side()
    tally, job = talk.core.divisions.by_island[HERE].tally, talk.core.jobs[1]

    tally.take(job, [7 * MS] * MOST, talk.now_ns + 7 * MS)
    tally.take(job, [9 * MS] * MOST, talk.now_ns + 9 * MS)

    assert set(tally.durations_ns["j-1"]) == {9 * MS}
    assert tally.served["j-1"] == 2 * MOST


def test_a_plan_is_looked_for_as_soon_as_it_is_known_how_a_job_scales_and_then_once_a_window():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.attach(2)
    asked = talk.core.divisions.by_island[HERE].asked

    talk.tell(2, ms=10, knee=4)
    assert talk.core.divisions.by_island[HERE].asked == asked + 1
    talk.tell(2, ms=10, knee=3)
    assert talk.core.divisions.by_island[HERE].asked == asked + 1


def test_a_newcomer_has_its_share_until_it_is_known_how_it_scales():
    talk = Planned(GREEN)
    talk.come(1, knee=6)

    talk.attach(2)
    assert talk.parts == {("j-1",): 4, ("j-2",): 4}
    assert "and it gets at least its share by weight" in " ".join(
        talk.core.divisions.by_island[HERE].seen.doubts
    )

    talk.tell(2, ms=10, knee=2)
    assert talk.parts == {("j-1",): 6, ("j-2",): 2}


def test_why_no_plan_was_found_is_told():
    talk = Planned(GREEN)
    talk.answers = False
    talk.attach(1)
    assert said(talk) == "plan: none yet: one is being made"

    (question,) = talk.of(FindPlan)
    why = "ZeroDivisionError: division by zero"
    failed = PlanFound(now_ns=talk.now_ns, gpus=HERE, number=question.number, found=(), failure=why)
    talk.say(failed)

    assert said(talk) == f"plan: none yet: none was found ({why})"


def test_what_came_of_a_plan_is_remembered_when_another_one_is_in_force():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.come(2, knee=4)
    talk.windows(WINDOWS + 1)
    talk.sample(1, iterations=100, after_ms=2000)

    talk.come(3, LATENCY, knee=4)

    assert (
        "plan before: space: progress 1.00 was predicted and 0.20 measured, over 5.0 s"
        in talk.lines(1)
    )


def test_a_process_that_leaves_is_no_progress_of_those_that_stay():
    talk = Planned(GREEN)
    talk.come(1, knee=4)
    talk.attach(11, job_id=1)
    talk.sample(1, iterations=100)
    talk.sample(11, iterations=5000)
    job = talk.core.jobs[1]
    tally, since_ns = Tally.of([job], talk.now_ns), talk.now_ns

    talk.sample(11, iterations=5020, after_ms=10)
    talk.leave(1)
    measured = tally.measured([job], {"j-1": Worker(name="j-1", solo_ns=1, at=float)}, talk.now_ns)

    assert measured["j-1"].progress == pytest.approx(20 / (talk.now_ns - since_ns))


def test_of_who_has_answered_too_few_requests_nothing_is_measured_by_its_iterations():
    talk = Talk(Options(sm_counts={0: 132}))
    talk.attach(1)
    job = talk.core.jobs[1]
    tally = Tally.of([job], talk.now_ns)
    talk.sample(1, after_ms=100, iterations=1000)

    server = Worker(name="j-1", solo_ns=1, at=float, rate=10.0)

    assert not tally.measured([job], {"j-1": server}, talk.now_ns)


def missing(talk, job_id, *, by_ms):
    """A window of requests that take too long."""
    talk.serves(job_id, *[by_ms] * 30)


def test_the_tuner_takes_groups_from_the_part_that_minds_least_and_the_plan_stays():
    options = replace(GREEN, tuner=True)
    talk = Planned(options)
    talk.come(1, ms=8, knee=2, slo_p99_ns=60 * MS)
    talk.come(2, knee=6)
    talk.come(3, ms=8, knee=2, slo_p99_ns=60 * MS, group="other")
    for _ in range(12):
        for server in (1, 3):
            talk.serves(server, 8)
        talk.now_ns += 20 * MS
    talk.windows(WINDOWS + 1)
    mine = next(members for members in talk.parts if "j-1" in members)
    talk.tell(1, ms=8, knee=4)
    before = talk.parts

    missing(talk, 1, by_ms=78)

    after = talk.parts
    assert after[mine] == before[mine] + 1
    assert after["j-2",] == before["j-2",] - 1
    assert sum(after.values()) == 8
    assert "tuner: its part has" in " | ".join(line for _, line in talk.core.jobs[1].story)

    talk.core.change_options(replace(options, tuner=False), now_ns=talk.now_ns)
    assert talk.parts == before


def served_by_need(talk, windows, *, rarely=(), **needs):
    """Requests take 7 ms on at least `need` groups and 12 on fewer; returns the resulting plans."""
    plans = []
    for _ in range(windows):
        for number in range(25):
            for name, need in needs.items():
                if name in rarely and number % 5:
                    continue
                job = talk.core.jobs[int(name[1:])]
                talk.serves(job.job_id, 7 if job.set.count >= need else 12)
            talk.now_ns += 15 * MS
        talk.tick()
        plans.append(talk.parts)
    return plans


def test_who_missed_with_a_group_less_does_not_give_it_again():
    talk = Planned(replace(GREEN, tuner=True))
    for job_id in (1, 2):
        talk.come(job_id, ms=2, knee=5, slo_p99_ns=10 * MS)

    plans = served_by_need(talk, 12, j1=4, j2=5)

    assert {("j-1",): 3, ("j-2",): 5} in plans
    assert all(plan == plans[6] for plan in plans[6:])


def test_who_has_few_requests_gives_no_other_group_before_they_tell_of_the_one_it_gave():
    talk = Planned(replace(GREEN, tuner=True))
    for job_id in (1, 2):
        talk.come(job_id, ms=2, knee=7, slo_p99_ns=10 * MS)

    plans = served_by_need(talk, 30, j1=8, j2=4, rarely=("j2",))

    assert plans[3] == {("j-1",): 4, ("j-2",): 4}
    assert plans[-1] == {("j-1",): 5, ("j-2",): 3}  # j-2 misses with 3 groups, and keeps them


def test_the_tuner_cuts_nobody_out_of_a_plan_in_which_all_take_turns():
    talk = Planned(replace(GREEN, tuner=True))
    talk.come(1, ms=2, knee=8)
    talk.come(2, ms=7, knee=8, slo_p99_ns=20 * MS)

    plans = served_by_need(talk, 12, j2=4)

    assert plans[3:] == [{("j-1", "j-2"): 8}] * 9  # from when its rate is known
    assert set(talk.sets.values()) == {Span(0, 8)}


def test_no_part_grows_beyond_the_knee_of_its_jobs():
    talk = Planned(replace(GREEN, tuner=True))
    talk.come(1, ms=8, knee=2, slo_p99_ns=60 * MS)
    talk.come(2, knee=6)
    talk.windows(WINDOWS + 1)
    assert talk.parts == {("j-1",): 2, ("j-2",): 6}

    missing(talk, 1, by_ms=78)

    assert talk.parts == {("j-1",): 2, ("j-2",): 6}


def test_a_window_with_a_change_of_the_tuner_has_none_of_the_plan():
    talk = three(replace(GREEN, tuner=True))
    division = talk.core.divisions.by_island[HERE]

    talk.tell(2, ms=4, knee=4)
    before, look_at_ns, asked = division.plan, division.look_at_ns, division.asked
    missing(talk, 2, by_ms=20)

    assert division.plan != before
    assert division.look_at_ns > look_at_ns
    assert division.asked == asked


def test_nothing_changes_while_nothing_changes():
    talk = three(replace(GREEN, tuner=True))

    def go_on():
        for _ in range(30):
            for _ in range(10):
                talk.serves(2, 4)
                talk.serves(3, 4)
                talk.now_ns += 100 * MS
            talk.windows()
        return talk.parts, talk.core.divisions.by_island[HERE].changes

    settled = go_on()  # the tuner gives back what requests do not need

    assert go_on() == settled
