"""What the story says of changes made by `tandem set`, and which of them have no effect."""

from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.effects import without_effect, without_effect_from_the_start
from tandemd.core.explain.explain import explain
from tandemd.core.memory.minima import share_bytes
from tandemd.core.model import JobSpec, Options, Split
from tandemd.core.space.sm_counts import given_sms
from tandemd.core.spec_words import changes_of

GIB = 1 << 30
SECOND = 1000 * MS


def test_the_story_has_old_and_new_values():
    talk = Talk()
    talk.attach(1, NORMAL, memory_bytes=20 * GIB)

    talk.update(1, job_class=BATCH, memory_bytes=10 * GIB, idle_release_ns=60 * SECOND)
    talk.update(1, job_class=BATCH, preemptible=False)

    told = [line for _, line in talk.core.job(1).story]
    first = "priority normal -> batch, memory 20 GiB -> 10 GiB, idle_release as configured -> 60 s"
    assert f"set: {first}" in told
    second = "memory 10 GiB -> none, idle_release 60 s -> as configured, preemptible not said -> no"
    assert f"set: {second}" in told


def test_what_is_set_to_what_it_was_is_no_change():
    spec = JobSpec(sm_percent=30, slo_p99_ns=50 * MS)

    assert changes_of(spec, spec) == "nothing changed"
    assert changes_of(spec, JobSpec()) == "sm 30% -> none, slo 50 ms -> none"


def told(talk, *fields):
    return list(without_effect(talk.core, talk.core.job(1), fields))


@pytest.mark.parametrize(("swappable", "warned"), [(True, False), (False, True)])
def test_idle_release_needs_memory_that_can_be_moved(swappable, warned):
    talk = Talk()
    talk.attach(1, swappable=swappable, idle_release_ns=60 * SECOND)

    lines = told(talk, "idle_release_ns")

    assert bool(lines) is warned
    assert not lines or "started with --swappable" in lines[0]


@pytest.mark.parametrize(
    ("preemptible", "most_ms", "warned"),
    [(None, 0, False), (True, 0, False), (False, 0, True), (False, 1, False)],
)
def test_whose_iterations_are_cut_anyway_is_told_so(preemptible, most_ms, warned):
    talk = Talk(Options(nonpreemptible_ns=most_ms * MS))
    talk.attach(1, preemptible=preemptible)
    spec = talk.core.job(1).spec

    lines = told(talk, "preemptible")

    assert lines == list(without_effect_from_the_start(talk.core, spec, frozenset()))
    assert bool(lines) is warned
    assert not lines or "scheduler.nonpreemptible_ms is 0" in lines[0]


@pytest.mark.parametrize(
    ("job_class", "options", "warned"),
    [
        (NORMAL, {}, True),
        (BATCH, {"policy": "fair"}, True),
        (LATENCY, {}, False),  # nobody holds it
        (NORMAL, {"tuner": True}, False),
        (NORMAL, {"planner": True}, False),
        (NORMAL, {"policy": "phases"}, True),
        (NORMAL, {"policy": "pair"}, False),  # a job that a companion would slow down gets none
        (NORMAL, {"splits": {0: Split(groups=8, group_sms=16)}}, False),
        (NORMAL, {"splits": {1: Split(groups=8, group_sms=16)}}, True),
    ],
)
def test_who_says_an_objective_that_nothing_follows_is_told_so(job_class, options, warned):
    talk = Talk(Options(**options))
    talk.attach(1, job_class, slo_p99_ns=50 * MS)
    spec = talk.core.job(1).spec

    lines = told(talk, "slo_p99_ns")

    assert lines == list(without_effect_from_the_start(talk.core, spec, frozenset({0})))
    assert bool(lines) is warned
    assert not lines or "only measured and reported, because partition.tuner is off" in lines[0]


@pytest.mark.parametrize(
    ("mps_gpus", "job_class", "warned"),
    [({0}, LATENCY, True), ({0}, NORMAL, False), ({}, LATENCY, False)],
)
def test_who_becomes_a_latency_job_under_mps_is_told_that_mps_does_not_hear_of_it(
    mps_gpus, job_class, warned
):
    talk = Talk(Options(mps_gpus=frozenset(mps_gpus)))
    talk.attach(1, BATCH)
    talk.update(1, job_class=job_class)

    lines = told(talk, "job_class")

    assert bool(lines) is warned
    assert not lines or "by the class in which the job started" in lines[0]


@pytest.mark.parametrize(("policy", "warned"), [("lanes", False), ("fair", True)])
def test_promises_of_memory_need_lanes(policy, warned):
    talk = Talk(Options(policy=policy))
    talk.core.memory.line.capacity_bytes = {0: 80 * GIB}
    talk.attach(1)

    lines = told(talk, "persistent_bytes", "ephemeral_bytes", "memory_bytes")

    assert bool(lines) is warned
    assert not lines or lines == [
        "persistent and ephemeral have no effect under the policy 'fair': only 'lanes' uses "
        "promises of memory"
    ]


def test_a_job_that_lanes_leave_alone_is_told_so():
    talk = Talk(Options(policy="lanes"))
    talk.attach(1)  # on a GPU whose size is unknown

    (line,) = told(talk, "ephemeral_bytes")

    assert line.startswith("ephemeral has no effect: lanes are for jobs on one gpu")


def test_of_what_was_not_set_now_nothing_is_said():
    talk = Talk()
    talk.attach(1, idle_release_ns=60 * SECOND, slo_p99_ns=50 * MS)

    (line,) = told(talk, "idle_release_ns")

    assert "idle_release" in line


def test_what_has_an_effect_is_not_warned_of():
    talk = Talk()
    talk.attach(1)

    assert told(talk, "memory_bytes", "job_class", "sm_percent") == []


def test_a_share_is_one_of_the_gpu_the_job_is_on():
    talk = Talk()
    talk.register(1)
    job, sizes = talk.core.job(1), {0: 80 * GIB, 1: 40 * GIB}
    assert share_bytes(30, job, sizes) is None, "it may come to either"
    assert share_bytes(30, job, {0: 80 * GIB, 1: 80 * GIB}) == 80 * GIB // 100 * 30
    assert share_bytes(30, job, {}) is None

    talk.attach(1, gpu=1)

    assert share_bytes(30, job, sizes) == 40 * GIB // 100 * 30
    assert share_bytes(30, job, {0: 80 * GIB}) is None


@pytest.mark.parametrize(
    ("policy", "job_class", "why"),
    [
        ("fifo", BATCH, "under fifo a turn does not end while there is work"),
        ("priority", LATENCY, "under priority its class takes no turns: it is never held"),
        ("priority", BATCH, None),
    ],
)
def test_a_share_of_time_needs_turns_that_end(policy, job_class, why):
    talk = Talk(Options(policy=policy))
    talk.attach(1, job_class)

    talk.update(1, job_class=job_class, sm_percent=30)
    set_ = told(talk, "sm_percent")
    talk.update(1, job_class=job_class)
    taken_back = told(talk, "sm_percent")

    assert set_ == ([f"sm has no effect: {why}"] if why else [])
    assert taken_back == []


@pytest.mark.parametrize("has_sets", [True, False])
def test_a_share_of_sms_needs_no_turns(has_sets):
    options = Options(policy="fifo", sm_counts={0: 128})
    if has_sets:
        splits = {0: Split(groups=8, group_sms=16)}
        options = replace(options, mps_gpus=frozenset({0}), splits=splits)
    talk = Talk(options)
    talk.attach(1, BATCH)

    talk.update(1, job_class=BATCH, sm_percent=30)

    assert bool(told(talk, "sm_percent")) is not has_sets


def test_a_percentage_of_mps_goes_before_a_set_of_sms():
    splits = {0: Split(groups=16, group_sms=8)}
    talk = Talk(Options(sm_counts={0: 128}, mps_gpus=frozenset({0}), splits=splits))
    talk.attach(1, BATCH)
    talk.core.processes[1].mps_percent = 30.0

    talk.update(1, job_class=BATCH, sm_percent=60)

    (warning,) = told(talk, "sm_percent")
    assert given_sms(talk.core.jobs[1], 0, talk.core.options) == 38
    assert warning.startswith("sm has no effect: an MPS percentage, 30%, limits it for as long as")


@pytest.mark.parametrize(("gib", "warned"), [(80, False), (81, True)])
def test_a_limit_above_what_the_gpu_has_limits_nothing(gib, warned):
    talk = Talk()
    talk.core.memory.line.capacity_bytes = {0: 80 * GIB, 1: 96 * GIB}
    talk.attach(1, memory_bytes=gib * GIB)

    assert (
        told(talk, "memory_bytes")
        == ["memory has no effect: 81 GiB is more than the 80 GiB that the gpu has"] * warned
    )
    lines = explain(talk.core, talk.core.job(1), talk.now_ns).lines
    assert any("has no effect" in line for line in lines) is warned


@pytest.mark.parametrize(("limit_mib", "warned"), [(300, False), (299, True)])
def test_a_limit_below_what_it_holds_takes_nothing_from_it(limit_mib, warned):
    talk = Talk()
    talk.attach(1, memory_bytes=limit_mib << 20)
    talk.core.processes[1].usage = replace(talk.core.processes[1].usage, device_bytes=300 << 20)

    assert (
        told(talk, "memory_bytes") == ["it holds 300 MiB: it keeps that, but gets no more"] * warned
    )


def test_where_no_gpu_is_known_nothing_is_said_of_a_limit():
    talk = Talk()
    talk.core.memory.line.capacity_bytes = {}
    talk.register(1, memory_bytes=GIB)

    assert told(talk, "memory_bytes") == []
