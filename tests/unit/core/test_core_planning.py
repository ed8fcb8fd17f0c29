"""What the planner is told about jobs, and what it has to assume."""

from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.events import RequestsServed, ScalingTold, WorkClassified
from tandemd.core.explain.scaling import scaling_lines
from tandemd.core.model import Bound, Mix, Options, SmSet, Split
from tandemd.core.planner.planning import how_to, outlook
from tandemd.core.planner.plans import Part, Valued
from tandemd.core.space.scaling import Curve
from tandemd.core.tuner.latency import SPAN_NS, RequestKind
from tandemd.core.tuner.sizes import ALIKE
from tandemd.core.turns.interference import Features, Interference, Neighbour, Trial

HERE = frozenset({0})
CURVE = Curve(sm_counts=(33, 66, 132), iteration_ns=(20 * MS, 12 * MS, 10 * MS))


@pytest.fixture
def talk():
    return Talk(Options(sm_counts={0: 132}, quantum_ns=5 * MS))


def seen(talk, model=None):
    model = model or Interference()
    return outlook(talk.core.islands[HERE], HERE, talk.core.options, model, talk.now_ns)


def tell(talk, process_id, curve):
    event = ScalingTold(now_ns=talk.now_ns, process_id=process_id, curve=curve, doubt="")
    talk.say(event)


def test_a_job_whose_scaling_is_known_is_planned_for_by_it(talk):
    talk.attach(1, NORMAL)
    tell(talk, 1, CURVE)

    scene = seen(talk).scene

    assert (scene.gpu.groups, scene.gpu.sms_of_group, scene.gpu.turn_ns) == (14, 9, 5 * MS)
    assert scene.workers["j-1"].solo_ns == CURVE.at(126)
    assert scene.workers["j-1"].at(66) == 12 * MS
    assert scene.workers["j-1"].weight == 4


def test_what_is_not_known_is_assumed_and_said(talk):
    talk.attach(1, BATCH)
    talk.sample(1, iteration_ns=8 * MS)
    talk.attach(2, BATCH)

    found = seen(talk)

    one, other = found.scene.workers.values()
    assert (one.solo_ns, one.at(63)) == (8 * MS, 16 * MS)
    assert other.solo_ns == 10 * MS
    told = " | ".join(found.doubts)
    assert "j-1: nothing has been recorded of it yet: its iterations (8.0 ms) count as if" in told
    assert "its iterations (of unknown length) count as if they filled the gpu" in told
    assert "j-2: what bounds its work is not known, so no slowdown is predicted" in told


def test_an_iteration_without_a_curve_is_one_on_the_sms_that_the_job_has():
    split = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE, splits=split))
    talk.attach(1, BATCH, sm_count=32)
    here = talk.core.job(1).set
    talk.sample(1, iteration_ns=8 * MS, in_set=SmSet(here.first, here.count, 8))

    (one,) = seen(talk).scene.workers.values()

    assert (one.at(32), one.at(128), one.solo_ns) == (8 * MS, 2 * MS, 2 * MS)


def test_requests_objectives_features_and_what_a_person_said_are_taken(talk):
    talk.attach(1, LATENCY, slo_p99_ns=50 * MS, sm_percent=50)
    shares = tuple(float(each is Bound.MEMORY) for each in Bound)
    mix = Mix(shares=shares, operations=100, untimed=0, at_ns=0)
    talk.say(WorkClassified(now_ns=talk.now_ns, process_id=1, mix=mix))
    for _ in range(11):
        durations_ns = (20 * MS,)
        kind = RequestKind.MARKED
        talk.say(
            RequestsServed(now_ns=talk.now_ns, process_id=1, kind=kind, durations_ns=durations_ns)
        )
        talk.now_ns += 100 * MS

    found = seen(talk)
    worker = found.scene.workers["j-1"]

    assert (worker.slo_ns, worker.groups, worker.features.memory) == (50 * MS, 7, 1.0)
    assert worker.rate == pytest.approx(10)
    assert found.measured_p99_ns == {"j-1": 20 * MS}


@pytest.mark.parametrize("kind", RequestKind)
def test_steps_and_bursts_of_one_process_are_one_at_a_time(talk, kind):
    talk.attach(1, LATENCY, slo_p99_ns=50 * MS)
    talk.say(RequestsServed(now_ns=talk.now_ns, process_id=1, kind=kind, durations_ns=(MS, MS, MS)))
    assert seen(talk).scene.workers["j-1"].is_serial is (kind is not RequestKind.MARKED)

    talk.attach(2, job_id=1)
    assert not seen(talk).scene.workers["j-1"].is_serial


@pytest.mark.parametrize(
    ("requests", "at_once", "is_serial"), [(30, 1, True), (30, 2, False), (9, 1, False)]
)
def test_marked_requests_are_one_at_a_time_if_so_many_would_overlap_by_chance(
    talk, requests, at_once, is_serial
):
    """They fill half of the time: of 30 arriving at random, 15 would overlap another."""
    talk.attach(1, LATENCY, slo_p99_ns=50 * MS)
    for number in range(requests):
        talk.now_ns += 10 * MS
        talk.say(
            RequestsServed(
                now_ns=talk.now_ns,
                process_id=1,
                kind=RequestKind.MARKED,
                durations_ns=(5 * MS,),
                at_once=at_once if number == 3 else 1,
            )
        )

    assert seen(talk).scene.workers["j-1"].is_serial is is_serial

    talk.now_ns += SPAN_NS + MS
    talk.say(
        RequestsServed(
            now_ns=talk.now_ns, process_id=1, kind=RequestKind.MARKED, durations_ns=(5 * MS,)
        )
    )
    assert not seen(talk).scene.workers["j-1"].is_serial  # nobody knows any more


def test_the_plans_are_the_planners(talk):
    for process_id in (1, 2):
        talk.attach(process_id, NORMAL)
        tell(talk, process_id, CURVE)

    found = seen(talk)

    assert [valued.kind for valued in found.alternatives()] == ["space", "time"]
    assert found.taking_turns() == found.alternatives()[1]


def test_what_happens_later_does_not_change_what_was_seen(talk):
    talk.attach(1, NORMAL, name="resnet")
    model = Interference()
    found = seen(talk, model)
    weights = found.scene.model.weights

    busy = Neighbour(Features(sm=1.0))
    model.learn(Trial(own=busy, others=(busy,), factor=3.0))
    talk.update(1, name="another")

    assert model.weights != weights == found.scene.model.weights
    assert found.titles == {"j-1": "resnet"}


def test_where_nobody_is_there_are_no_plans(talk):
    talk.attach(1, NORMAL)
    found = outlook([], HERE, talk.core.options, Interference(), 0)

    assert (found.alternatives(), found.taking_turns()) == ([], None)


def test_of_a_gpu_whose_sms_are_not_known_nothing_is_planned():
    talk = Talk(Options())
    talk.attach(1, NORMAL)

    assert seen(talk) is None


@pytest.mark.parametrize("mode", ["time", "mps", "mps+green", "mig"])
def test_every_mode_says_what_a_plan_takes(mode):
    answers = {kind: how_to(kind, mode) for kind in ("time", "space", "time and space")}

    assert all(answers.values())
    assert (answers["time"] == "is how jobs share it") == (mode in ("time", "mig"))
    assert ("partition apply --mig" in answers["space"]) == (mode == "mig")


def test_a_server_of_which_no_rate_is_known_is_not_taken_to_want_all_the_time(talk):
    """The server's curve leaves out its pauses: it works 10 ms in 100."""
    talk.attach(1, LATENCY)
    talk.attach(2, LATENCY)
    tell(talk, 1, CURVE)
    tell(talk, 2, CURVE)
    talk.sample(1, iteration_ns=100 * MS)
    talk.sample(2, iteration_ns=10 * MS)

    turns = seen(talk).taking_turns()

    assert turns.forecasts["j-1"].progress < 0.15
    assert turns.forecasts["j-2"].progress > 0.85


PLANS = {
    "time": (Part(14, ("a", "b")),),
    "space": (Part(7, ("a",)), Part(7, ("b",))),
    "time and space": (Part(7, ("a",)), Part(7, ("b", "c"))),
}


def needs(here, *plan):
    valued = Valued(plan=plan, forecasts={}, missed=0, progress=1.0)
    return here.what_it_takes(valued, has_planner=False)


def test_percentages_that_jobs_have_already_are_not_asked_for():
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE, policy="pair"))
    for process_id, percent in ((1, 25.0), (2, 75.0)):
        talk.attach(process_id, NORMAL)
        talk.core.processes[process_id].mps_percent = percent
    gpu = seen(talk).scene.gpu
    parts = [
        Part(round(gpu.groups * part), (name,)) for name, part in (("j-1", 0.25), ("j-2", 0.75))
    ]
    others = [Part(gpu.groups // 2, (name,)) for name in ("j-1", "j-2")]

    assert needs(seen(talk), *parts) == "is how jobs share it"
    assert needs(seen(talk), *others) == how_to("space", "mps")

    for policy in ("priority", "throttle"):  # `throttle` overlaps only batch with normal
        talk.core.change_options(replace(talk.core.options, policy=policy), now_ns=talk.now_ns)
        assert needs(seen(talk), *parts) == "needs policy pair, for jobs to overlap"


def test_what_a_plan_takes_is_not_told_as_possible_where_its_mode_is_not():
    few = {0: {"mps+green": "two sets of SMs take 16 SMs, but it has 8"}}
    talk = Talk(Options(sm_counts={0: 8}, why_not=few))
    talk.attach(1, NORMAL)
    here = seen(talk)

    both, space, time = (needs(here, *PLANS[k]) for k in ("time and space", "space", "time"))

    assert (
        both
        == "is not possible: it needs mode mps+green, but two sets of SMs take 16 SMs, but it has 8"
    )
    assert (space, time) == (how_to("space", "time"), "is how jobs share it")


def test_jobs_of_several_users_are_not_told_to_take_mps(talk):
    talk.attach(1, NORMAL, uid=1000)
    alone = needs(seen(talk), *PLANS["space"])
    talk.attach(2, NORMAL, uid=1001)

    space, time = (needs(seen(talk), *PLANS[k]) for k in ("space", "time"))

    assert alone == how_to("space", "time")
    assert space.startswith(
        "is not possible: it needs mode mps, but mps runs jobs of only one user"
    )
    assert time == "is how jobs share it"


def serve(talk, process_id, *, ms, every_ms, times=30, held_ms=0, at_once=1):
    """Serves `times` requests that took `ms` each, one every `every_ms`."""
    for _ in range(times):
        talk.now_ns += every_ms * MS
        ended = RequestsServed(
            now_ns=talk.now_ns,
            process_id=process_id,
            kind=RequestKind.MARKED,
            durations_ns=(ms * MS,),
            held_ns=(held_ms * MS,),
            at_once=at_once,
        )
        talk.say(ended)


def test_pauses_of_the_host_are_no_part_of_what_a_request_takes(talk):
    talk.attach(1, NORMAL, slo_p99_ns=50 * MS)
    paced = Curve(sm_counts=(66, 132), iteration_ns=(104 * MS, 100 * MS))
    tell(talk, 1, paced)
    serve(talk, 1, ms=4, every_ms=100)

    found = seen(talk)

    assert found.scene.workers["j-1"].pause_ns == 96 * MS
    forecast = found.taking_turns().forecasts["j-1"]
    assert forecast.p99_ns < 10 * MS  # not as long as until the next request
    assert forecast.progress == 1


def test_a_quick_request_is_a_part_of_a_larger_one_that_was_recorded(talk):
    talk.attach(1, NORMAL, slo_p99_ns=50 * MS)
    even = Curve(sm_counts=(66, 132), iteration_ns=(80 * MS, 40 * MS))
    tell(talk, 1, even)
    serve(talk, 1, ms=10, every_ms=100)

    worker = seen(talk).scene.workers["j-1"]

    assert (worker.pause_ns, worker.times) == (0, 0.25)
    assert worker.times * worker.at(66) == 20 * MS  # not 50, as if 30 of them were a pause


def test_a_request_of_several_iterations_takes_so_many_times_as_long(talk):
    talk.attach(1, NORMAL, slo_p99_ns=50 * MS)
    tell(talk, 1, CURVE)
    serve(talk, 1, ms=30, every_ms=1000)

    worker = seen(talk).scene.workers["j-1"]

    assert (worker.pause_ns, worker.times) == (0, 3)
    assert 30 * MS <= seen(talk).taking_turns().forecasts["j-1"].p99_ns < 50 * MS


def test_requests_differ_in_what_they_need_and_not_in_how_long_they_were_held(talk):
    talk.attach(1, NORMAL, slo_p99_ns=500 * MS)
    tell(talk, 1, CURVE)
    serve(talk, 1, ms=10, every_ms=100, times=90)
    serve(talk, 1, ms=90, held_ms=80, every_ms=100)
    assert seen(talk).scene.workers["j-1"].sizes == ALIKE

    serve(talk, 1, ms=40, held_ms=10, every_ms=100)

    assert seen(talk).scene.workers["j-1"].sizes.p99 == 3


def test_requests_that_overlap_do_not_tell_how_they_differ(talk):
    talk.attach(1, NORMAL, slo_p99_ns=500 * MS)
    tell(talk, 1, CURVE)
    serve(talk, 1, ms=10, every_ms=100)
    serve(talk, 1, ms=40, every_ms=100, at_once=2)

    assert seen(talk).scene.workers["j-1"].sizes == ALIKE


def test_requests_of_several_iterations_stay_so_while_nobody_asks(talk):
    talk.attach(1, NORMAL, slo_p99_ns=50 * MS)
    tell(talk, 1, CURVE)
    serve(talk, 1, ms=30, every_ms=1000)
    rhythm = talk.core.job(1).rhythm

    talk.now_ns += 60_000 * MS
    talk.core.job(1).latency.age(talk.now_ns)
    talk.sample(1, after_ms=1000, iterations=50, exclusive_ns=50 * 4 * MS)

    assert talk.core.job(1).rhythm == rhythm
    assert rhythm.quick_ns == 30 * MS


def test_two_that_pause_most_of_the_time_hardly_wait_for_each_other(talk):
    for process_id in (1, 2):
        talk.attach(process_id, NORMAL)
        tell(talk, process_id, Curve(sm_counts=(132,), iteration_ns=(100 * MS,)))
    before = seen(talk).taking_turns()

    talk.sample(1, 2, after_ms=1000, iterations=50, exclusive_ns=50 * 20 * MS)

    assert before.progress == pytest.approx(1)
    assert seen(talk).scene.workers["j-1"].pause_ns == 80 * MS
    assert seen(talk).taking_turns().progress == pytest.approx(2)


def test_gpu_time_that_is_an_estimate_tells_no_pause(talk):
    talk.attach(1, NORMAL)
    tell(talk, 1, Curve(sm_counts=(132,), iteration_ns=(100 * MS,)))
    estimate = {"exclusive_ns": 25 * 20 * MS, "shared_ns": MS, "even_ns": 25 * 20 * MS}

    talk.sample(1, after_ms=1000, iterations=50, **estimate)

    assert seen(talk).scene.workers["j-1"].pause_ns == 0


@pytest.mark.parametrize("paused_ms", [0, 6])
def test_pauses_are_told_of_iterations_on_the_sms_that_they_ran_on(paused_ms):
    """It trains on all SMs for a long time, and then on half of them."""
    split = {0: Split(groups=16, group_sms=8)}
    options = Options(sm_counts={0: 132}, mps_gpus=HERE, splits=split, probe_sets=False)
    talk = Talk(options)
    talk.attach(1, NORMAL)
    counts, times_ms = (64, 128), (20, 10)
    tell(talk, 1, Curve(sm_counts=counts, iteration_ns=tuple(ms * MS for ms in times_ms)))

    def trains(groups, *, ms):
        """Runs fifty iterations of `ms` of work each; returns the pause seen before and after."""
        talk.sample(1, after_ms=1000, in_set=SmSet(0, groups, 8))
        before, told = talk.usages[1], [seen(talk)]
        figures = {"exclusive_ns": before.exclusive_ns + 50 * ms * MS}
        talk.sample(1, after_ms=1000, iterations=before.iterations + 50, **figures)
        return [one.scene.workers["j-1"].pause_ns for one in (*told, seen(talk))]

    assert trains(16, ms=10 - paused_ms) == [0, paused_ms * MS]
    talk.update(1, sm_count=64)
    assert trains(8, ms=20 - paused_ms) == [paused_ms * MS] * 2


def test_without_a_curve_pauses_are_those_of_the_sms_that_it_is_on():
    split = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE, splits=split))
    talk.attach(1, NORMAL)
    on_gpu = {"iterations": 50, "exclusive_ns": 50 * 4 * MS}
    talk.sample(1, after_ms=1, in_set=SmSet(0, 16, 8))
    talk.sample(1, after_ms=1000, iteration_ns=10 * MS, **on_gpu)
    assert seen(talk).scene.workers["j-1"].pause_ns == 6 * MS

    talk.update(1, sm_count=64)
    talk.sample(1, after_ms=1, iteration_ns=14 * MS, in_set=SmSet(0, 8, 8))

    assert seen(talk).scene.workers["j-1"].pause_ns == 0


def test_rates_are_those_of_the_last_window_where_it_has_enough(talk):
    talk.attach(1, NORMAL, slo_p99_ns=50 * MS)
    serve(talk, 1, ms=4, every_ms=400)
    slow = seen(talk).scene.workers["j-1"].rate
    serve(talk, 1, ms=4, every_ms=20, times=100)

    assert slow == pytest.approx(2.5)
    assert seen(talk).scene.workers["j-1"].rate == pytest.approx(50)


def test_where_all_take_turns_shares_count_as_they_do_in_turns(talk):
    talk.attach(1, NORMAL, sm_percent=30)
    talk.attach(2, NORMAL)
    talk.attach(3, BATCH)
    for process_id in (1, 2, 3):
        tell(talk, process_id, Curve(sm_counts=(132,), iteration_ns=(10 * MS,)))

    forecasts = seen(talk).taking_turns().forecasts

    progress = {name: round(forecast.progress, 3) for name, forecast in forecasts.items()}
    assert progress == {"j-1": 0.3, "j-2": 0.56, "j-3": 0.14}


def test_a_percentage_of_the_sms_is_no_share_of_the_time():
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE))
    talk.attach(1, NORMAL, sm_percent=30)
    talk.attach(2, NORMAL)
    for process_id in (1, 2):
        tell(talk, process_id, Curve(sm_counts=(132,), iteration_ns=(10 * MS,)))

    forecasts = seen(talk).taking_turns().forecasts

    # Each has half of the time, and the first never has more than 40 of the 126 SMs that count.
    assert [one.progress for one in forecasts.values()] == pytest.approx([0.5 * 40 / 126, 0.5])


def test_who_has_a_percentage_gains_nothing_by_turns_on_all_sms():
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE))
    for process_id in (1, 2):
        talk.attach(process_id, NORMAL, sm_percent=20)
        tell(talk, process_id, Curve(sm_counts=(66, 132), iteration_ns=(20 * MS, 10 * MS)))

    best, other = seen(talk).alternatives()

    assert (best.kind, other.kind) == ("space", "time")
    assert best.progress == pytest.approx(2 * other.progress, rel=0.1)


def test_a_share_is_one_of_all_the_time_and_not_of_what_requests_leave(talk):
    talk.attach(1, NORMAL, sm_percent=30)
    talk.attach(2, NORMAL)
    talk.attach(3, NORMAL, slo_p99_ns=50 * MS)
    for process_id in (1, 2, 3):
        tell(talk, process_id, Curve(sm_counts=(132,), iteration_ns=(10 * MS,)))
    serve(talk, 3, ms=10, every_ms=50, times=50)

    forecasts = seen(talk).taking_turns().forecasts

    assert forecasts["j-1"].progress == pytest.approx(0.3)
    assert forecasts["j-2"].progress == pytest.approx(0.5, rel=0.05)  # of 126 SMs


def test_on_an_instance_of_mig_nothing_but_turns_is_planned():
    talk = Talk(Options(sm_counts={0: 132}, mig_gpus=HERE))
    for process_id in (1, 2):
        talk.attach(process_id, NORMAL)
        tell(talk, process_id, CURVE)

    (only,) = seen(talk).alternatives()

    assert only.kind == "time"
    assert how_to(only.kind, seen(talk).mode) == "is how jobs share it"


def test_under_percentages_nobody_takes_turns_beside_others():
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE))
    for process_id in (1, 2, 3):
        talk.attach(process_id, NORMAL)
        tell(talk, process_id, CURVE)

    assert {valued.kind for valued in seen(talk).alternatives()} == {"space", "time"}


@pytest.mark.parametrize("splits", [{}, {0: Split(16, 8), 1: Split(8, 8)}])
def test_a_job_on_unlike_gpus_is_planned_for_as_on_the_smallest(splits):
    gpus = frozenset({0, 1})
    mps_gpus = gpus if splits else frozenset()
    talk = Talk(Options(sm_counts={0: 132, 1: 66}, mps_gpus=mps_gpus, splits=splits))
    talk.attach(1, NORMAL)
    talk.add_gpu(1, 1)

    found = outlook(talk.core.islands[gpus], gpus, talk.core.options, Interference(), talk.now_ns)

    assert found.scene.gpu.groups * found.scene.gpu.sms_of_group <= 66


def test_where_sets_are_told_what_a_person_fixed_is_no_share_of_the_time():
    split = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE, splits=split))
    talk.attach(1, NORMAL, sm_count=40)
    talk.attach(2, NORMAL)

    found = seen(talk)

    assert found.scene.workers["j-1"].groups == 5
    assert {valued.kind for valued in found.alternatives()} == {"space"}
    assert found.taking_turns() is not None  # its value, for comparison


def test_a_percentage_of_one_of_its_processes_keeps_a_job_out_of_sets():
    split = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE, splits=split))
    for process_id in (1, 2):
        talk.attach(process_id, job_id=1)

    talk.core.processes[1].mps_percent = 25.0

    assert "all take turns: j-1 is limited by an MPS percentage, not by a set" in seen(talk).doubts


@pytest.mark.parametrize("usage", [{"staying_streams": (1, 0, 0, 0, 0, 0)}, {"runs_graphs": True}])
def test_where_no_set_would_hold_some_work_nothing_but_turns_is_planned(usage):
    split = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 132}, mps_gpus=HERE, splits=split))
    for process_id in (1, 2):
        talk.attach(process_id, NORMAL, sm_count=16)
        tell(talk, process_id, CURVE)
    assert {valued.kind for valued in seen(talk).alternatives()} == {"space"}
    talk.sample(1, staying_streams=(0, 0, 0, 0, 1, 2))  # captures and refused streams are temporary
    assert {valued.kind for valued in seen(talk).alternatives()} == {"space"}

    talk.sample(1, **usage)

    assert [valued.kind for valued in seen(talk).alternatives()] == ["time"]
    assert "all take turns: work of j-1 stays on the whole gpu" in seen(talk).doubts


def test_the_size_that_fits_is_told_with_the_name_of_the_instance():
    talk = Talk(Options(sm_counts={136: 132}, mig_gpus=frozenset({136}), gpu_names={136: "0:1"}))
    talk.attach(1, NORMAL, gpu=136)
    tell(talk, 1, CURVE)

    _, fits = scaling_lines(talk.core, talk.core.job(1))

    assert fits.startswith("beside the others 132 SMs of gpu 0:1 would fit it")
