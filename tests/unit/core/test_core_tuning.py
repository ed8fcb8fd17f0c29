"""Conversations that test the tuner within the scheduler: requests in, shares of time out."""

from collections import deque
from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.events import RequestsServed, ScalingTold, SetSms
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options, Split
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sets import Span
from tandemd.core.tuner import tuning
from tandemd.core.tuner.latency import RequestKind, percentile_ns
from tandemd.core.tuner.tuning import sizes_on
from tandemd.core.turns.interference import Features, Neighbour, Trial

SLO_MS, WINDOW_MS = 60, 250
SERVER, OTHERS = 1, (2, 3)
WORK_MS, EVERY_MS = 4, 10  # 40% of the time, more than the third that each job gets


def talking(*, tuner=True, **options):
    options = {"policy": "fair", "quantum_ns": 5 * MS, "tuner_window_ns": WINDOW_MS * MS} | options
    return Talk(Options(tuner=tuner, **options))


def test_what_was_measured_before_is_taken_in_when_it_is_told_and_once():
    own = Neighbour(Features(sm=0.5))
    talk, trials = Talk(), [Trial(own=own, others=(own,), factor=2.0)]
    told = talk.core.tuning
    told.recall({0: trials})
    told.recall({0: trials, 1: trials * 2})
    trials.clear()

    models = [told.model_of(frozenset(gpus)) for gpus in ({0}, {1}, {2}, {0, 1})]

    assert [model.recalled for model in models] == [1, 2, 0, 0]


def served(talk, process_id, *durations_ms):
    durations_ns = tuple(int(each * MS) for each in durations_ms)
    kind = RequestKind.MARKED
    now_ns = talk.now_ns
    return talk.say(
        RequestsServed(now_ns=now_ns, process_id=process_id, kind=kind, durations_ns=durations_ns)
    )


def serve(talk, duration_ms):
    """Requests keep coming and the others always have work; returns what each request took."""
    queue, took_ms, on_gpu = deque(), [], None
    for at_ms in range(duration_ms):
        if at_ms % EVERY_MS == 0:
            queue.append((at_ms, WORK_MS))
        if on_gpu is not None and not talk.is_open(on_gpu):
            talk.waits(on_gpu, after_ms=1)  # the hand-over takes a millisecond
            on_gpu = None
            continue
        on_gpu = run_a_millisecond(talk, [SERVER, *OTHERS] if queue else OTHERS)
        if on_gpu == SERVER and (ended := work_on(queue)) is not None:
            took_ms.append(at_ms + 1 - ended)
            served(talk, SERVER, took_ms[-1])
            if not queue:
                talk.rests(SERVER)
                on_gpu = None
    return took_ms


def run_a_millisecond(talk, wanting):
    """Runs one millisecond; returns the process that had the GPU."""
    runner = next((p for p in wanting if talk.is_open(p)), None)
    for process_id in wanting:
        if process_id != runner:
            talk.waits(process_id)
    if runner is None:
        talk.tick(after_ms=1)
    else:
        talk.works(runner, after_ms=1, ran_ms=1)
    return runner


def work_on(queue):
    """Does one millisecond of work; returns the arrival of the request it answers, else None."""
    came_ms, left_ms = queue.popleft()
    if left_ms == 1:
        return came_ms
    queue.appendleft((came_ms, left_ms - 1))
    return None


def attach_all(talk, **spec):
    talk.attach(SERVER, NORMAL, slo_p99_ns=SLO_MS * MS, **spec)
    for process_id in OTHERS:
        talk.attach(process_id, NORMAL)


def group(talk, job_id=SERVER):
    return talk.core.group_of(talk.core.jobs[job_id])


def lines(talk, job_id=SERVER):
    return " ".join(explain(talk.core, talk.core.jobs[job_id], talk.now_ns).lines)


def p99(took_ms):
    return percentile_ns(took_ms, 0.99)


def test_the_tuner_gives_a_job_the_time_that_its_objective_needs():
    without, tuned = talking(tuner=False), talking()
    attach_all(without)
    attach_all(tuned)

    missed = serve(without, 1500)
    kept = serve(tuned, 4000)

    assert p99(missed[-100:]) > SLO_MS
    assert p99(kept[-50:]) <= SLO_MS
    assert group(tuned).tuned_share > 0.35
    assert "tuner: off (partition.tuner)" in lines(without)
    assert f"tuner: its share of time is {group(tuned).owed_share:.0%}" in lines(tuned)
    assert "above its objective" in " ".join(line for _, line in tuned.core.jobs[SERVER].story)


def test_a_size_that_was_tuned_is_there_for_who_comes_in_the_same_moment():
    talk = talking()
    attach_all(talk)
    served(talk, SERVER, *[130] * 30)
    talk.tick()
    share = group(talk).owed_share
    assert share == pytest.approx(0.38)

    talk.attach(5, NORMAL)  # one event: placed, weighed, and told

    assert group(talk).owed_share == pytest.approx(share)
    assert group(talk, 5).owed_share == pytest.approx((1 - share) / 3)
    talk.leave(5)
    assert group(talk, 2).owed_share == pytest.approx((1 - share) / 2)


def test_what_a_person_said_stands_and_the_wish_is_told():
    talk = talking()
    attach_all(talk, sm_percent=20)

    served(talk, SERVER, *[78] * 30)
    talk.tick(after_ms=WINDOW_MS)

    assert group(talk).tuned_share == 0
    assert group(talk).owed_share == pytest.approx(0.2)
    told = lines(talk)
    assert "its share of time is fixed by --sm 20%" in told
    assert "it would get 25%, because its p99 is 30% above its objective" in told
    assert "until `tandem set j-1 sm=none`" in told


def test_a_share_that_is_set_later_takes_the_place_of_the_tuned_one():
    talk = talking()
    attach_all(talk)
    served(talk, SERVER, *[130] * 30)
    talk.tick()
    assert group(talk).tuned_share == pytest.approx(0.38)

    talk.update(SERVER, slo_p99_ns=SLO_MS * MS, sm_percent=50)

    assert group(talk).owed_share == pytest.approx(0.5)


def test_without_the_tuner_from_now_on_nobody_keeps_what_it_gave():
    talk = talking()
    attach_all(talk)
    served(talk, SERVER, *[130] * 30)
    talk.tick()

    talk.core.change_options(Options(policy="fair"), now_ns=talk.now_ns)

    assert group(talk).tuned_share == 0
    assert group(talk).owed_share == 0


def test_who_takes_no_turns_cannot_be_helped_by_shares_of_time_and_is_told_so():
    talk = talking(policy="priority")
    talk.attach(SERVER, LATENCY, slo_p99_ns=SLO_MS * MS)
    talk.attach(2, BATCH)

    served(talk, SERVER, *[130] * 30)
    talk.tick(after_ms=WINDOW_MS)

    assert group(talk).tuned_share == 0
    assert "it has no effect on this job: under priority its class takes no turns" in lines(talk)


def test_who_takes_no_turns_costs_no_decision_more_than_once(monkeypatch):
    talk = talking(policy="priority")
    talk.attach(SERVER, LATENCY, slo_p99_ns=SLO_MS * MS)
    talk.attach(2, BATCH, slo_p99_ns=SLO_MS * MS)
    counted = []
    monkeypatch.setattr(tuning, "sizes_on", lambda *of: counted.append(of) or sizes_on(*of))

    served(talk, SERVER, *[130] * 30)
    for _ in range(20):
        talk.tick(after_ms=WINDOW_MS)

    assert len(counted) == 1


def test_what_requests_took_under_the_policy_before_decides_nothing():
    talk = talking(policy="priority")
    attach_all(talk)
    served(talk, SERVER, *[10] * 7, *[200] * 12)

    talk.policy("fair")
    served(talk, SERVER, 10)
    talk.tick(after_ms=500)

    assert group(talk).tuned_share == 0


def test_jobs_of_a_group_settle_on_what_the_one_needs_that_needs_more():
    talk = talking()
    talk.attach(SERVER, NORMAL, slo_p99_ns=SLO_MS * MS, group="g")
    talk.attach(5, NORMAL, slo_p99_ns=SLO_MS * MS, group="g")
    for process_id in OTHERS:
        talk.attach(process_id, NORMAL)
    shares = []
    for _ in range(60):
        shares.append(round(100 * group(talk).owed_share))
        served(talk, SERVER, *[40 if shares[-1] >= 40 else 70] * 30)
        served(talk, 5, *[20] * 30)
        talk.tick(after_ms=WINDOW_MS)

    assert len(set(shares[-40:])) == 1
    assert shares[-1] >= 40


def test_under_mps_a_part_of_the_sms_is_only_a_wish():
    talk = talking(mps_gpus=frozenset({0}), sm_counts={0: 132})
    talk.attach(SERVER, NORMAL, slo_p99_ns=SLO_MS * MS, sm_percent=40)
    talk.attach(2, NORMAL)

    served(talk, SERVER, *[130] * 30)
    talk.tick(after_ms=WINDOW_MS)

    told = lines(talk)
    assert "its part of the SMs is fixed while it runs" in told
    assert "it would get 45%" in told
    assert "restarted with `tandem run --sm`" in told


def test_a_phase_that_comes_again_gets_its_share_in_the_same_moment():
    talk = talking()
    attach_all(talk)

    def phase(number, took_ms, windows):
        for _ in range(windows):
            talk.sample(SERVER, after_ms=WINDOW_MS, phase_hash=number)
            served(talk, SERVER, *[took_ms] * 30)
            talk.tick()

    phase(7, 55, 3)
    phase(9, 80, 3)
    grown = group(talk).tuned_share
    phase(7, 55, 2)
    assert group(talk).tuned_share < grown

    talk.sample(SERVER, phase_hash=9)

    assert group(talk).tuned_share == grown
    assert "it is back in a phase" in lines(talk)


def test_under_mps_a_phase_that_comes_again_changes_nothing():
    talk = talking(mps_gpus=frozenset({0}), sm_counts={0: 132})
    attach_all(talk)
    for number in (7, 9, 7):
        for _ in range(3):
            talk.sample(SERVER, after_ms=WINDOW_MS, phase_hash=number)
            served(talk, SERVER, *[55] * 30)
            talk.tick()

    talk.sample(SERVER, phase_hash=9)

    assert group(talk).tuned_share == 0
    assert "share of time" not in " ".join(line for _, line in talk.core.jobs[SERVER].story)


def test_jobs_without_an_objective_hear_nothing_of_the_tuner():
    talk = talking()
    attach_all(talk)

    assert "tuner" not in lines(talk, 2)


def test_a_job_that_leaves_when_its_window_is_over_is_nobodys_business():
    talk = talking()
    attach_all(talk)
    assert "its share of time is that of its class" in lines(talk)
    served(talk, SERVER, 70, *[10] * 30)  # misses, but only the end of the window makes it certain

    talk.now_ns += WINDOW_MS * MS
    talk.leave(SERVER)

    assert SERVER not in talk.core.tuning.reasons


def test_a_phase_with_the_size_that_it_has_already_changes_nothing():
    talk = talking()
    attach_all(talk)
    for phase in (7, 9, 7):
        for _ in range(3):
            talk.sample(SERVER, after_ms=WINDOW_MS, phase_hash=phase)
            served(talk, SERVER, *[80 if phase == 7 and not group(talk).tuned_share else 55] * 30)
            talk.tick()
    share = group(talk).tuned_share

    talk.sample(SERVER, phase_hash=9)

    assert group(talk).tuned_share == share > 0


def green(**options):
    """Eight groups of 16 SMs, on which kernels of several processes run side by side."""
    options |= {"policy": "pair", "splits": {0: Split(groups=8, group_sms=16)}}
    return talking(mps_gpus=frozenset({0}), sm_counts={0: 128}, **options)


def sets(talk):
    return {p: talk.core.jobs[p].set for p in talk.core.jobs}


def test_where_sets_are_told_a_size_is_a_number_of_groups_told_in_the_same_moment():
    talk = green()
    attach_all(talk)
    assert sets(talk) == dict.fromkeys((1, 2, 3), Span(0, 8))  # all share all groups

    served(talk, SERVER, *[78] * 30)

    assert talk.of(SetSms)  # to the server, or to a job that has to leave, in answer to that event
    assert sets(talk)[SERVER].count == 3  # an equal part for each of the three would be 2
    assert not sets(talk)[SERVER].overlap(sets(talk)[2])
    assert "tuner: it is on 3 groups of SMs" in lines(talk)
    assert "it is to have 3 groups of SMs: its p99 is 30% above" in " ".join(
        line for _, line in talk.core.jobs[SERVER].story
    )


def test_who_comes_gets_no_group_of_a_tuned_job_unless_all_are_sized_anew():
    talk = green(size_sets=False)
    attach_all(talk)
    served(talk, SERVER, *[78] * 30)
    held = sets(talk)[SERVER]

    talk.attach(5, NORMAL)

    assert sets(talk)[SERVER] == held
    assert talk.of(SetSms, 5)
    assert not sets(talk)[5].overlap(held)


def test_groups_grow_to_the_knee_and_leave_the_others_one():
    talk = green()
    attach_all(talk)
    for _ in range(20):
        talk.now_ns += WINDOW_MS * MS
        served(talk, SERVER, *[78] * 30)
    assert sets(talk)[SERVER].count == 7

    curve = Curve(sm_counts=(16, 64, 128), iteration_ns=(80 * MS, 20 * MS, 20 * MS))
    knee = ScalingTold(now_ns=talk.now_ns, process_id=SERVER, curve=curve, doubt="")
    other = green()
    attach_all(other)
    other.say(knee)
    for _ in range(20):
        other.now_ns += WINDOW_MS * MS
        served(other, SERVER, *[78] * 30)
    assert sets(other)[SERVER].count == 4


def test_groups_that_a_person_asked_for_stay_and_the_wish_is_told():
    talk = green()
    attach_all(talk, sm_count=32)

    served(talk, SERVER, *[78] * 30)

    assert sets(talk)[SERVER].count == 2
    told = lines(talk)
    assert "it is on 2 groups of SMs and stays there, because of --sm 32 SMs" in told
    assert "it would get 3 groups of SMs" in told
    assert "until `tandem set j-1 sm=none`" in told


def test_without_the_tuner_from_now_on_groups_are_shared_again():
    talk = green()
    attach_all(talk)
    served(talk, SERVER, *[78] * 30)
    assert sets(talk)[SERVER].count == 3

    options = replace(talk.core.options, tuner=False)
    talk.core.change_options(options, now_ns=talk.now_ns)

    assert talk.core.jobs[SERVER].groups_wanted == 0
    assert sets(talk) == dict.fromkeys((1, 2, 3), Span(0, 8))


def test_without_the_tuner_groups_that_a_person_has_asked_for_meanwhile_stay():
    talk = green()
    attach_all(talk)
    served(talk, SERVER, *[78] * 30)
    talk.update(SERVER, slo_p99_ns=SLO_MS * MS, sm_count=32)
    assert sets(talk)[SERVER].count == 2

    options = replace(talk.core.options, tuner=False)
    talk.core.change_options(options, now_ns=talk.now_ns)
    talk.tick()

    assert sets(talk)[SERVER].count == 2
