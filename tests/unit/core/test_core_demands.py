"""How many SMs a job counts for on a shared GPU, and how what it is charged affects turns."""

from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, Talk

from tandemd.core.events import ScalingTold, WorkClassified
from tandemd.core.explain.explain import explain
from tandemd.core.model import MPS_MISSES, Bound, Mix, Options, SmSet, Split
from tandemd.core.space.demands import Source, demand_of, demand_of_group
from tandemd.core.space.scaling import Curve
from tandemd.core.space.sets import Span

SMS, GROUP_SMS = 128, 8
MPS = {"sm_counts": {0: SMS}, "mps_gpus": frozenset({0})}
GREEN = MPS | {"splits": {0: Split(groups=SMS // GROUP_SMS, group_sms=GROUP_SMS)}}
KINDS = {1: Bound.COMPUTE, 2: Bound.SMALL, 3: Bound.COMPUTE}  # by process


def talking(*processes, options=MPS, policy="pair"):
    talk = Talk(Options(policy=policy, size_sets=False, probe_sets=False, **options))
    for process_id in processes or (1, 2):
        talk.attach(process_id, BATCH)
    return talk


def record(talk, process_id, held_sms, *, on=SMS):
    curve = Curve(sm_counts=(on,), iteration_ns=(MS,), recorded_sms=on, held_sms=held_sms)
    talk.say(ScalingTold(now_ns=talk.now_ns, process_id=process_id, curve=curve, doubt=""))


def demand(talk, process_id):
    process = talk.core.processes[process_id]
    job = talk.core.jobs[process.job_id]
    return demand_of(process, job, talk.core.group_of(job), talk.core.options)


def counts(talk, process_id):
    found = demand(talk, process_id)
    return found.sms, found.source


def lines(talk, job_id):
    return " | ".join(explain(talk.core, talk.core.job(job_id), talk.now_ns).lines)


def put_on_set(talk, process_id, groups, *, asked=True):
    """The process's streams run on the set."""
    job = talk.core.jobs[talk.core.processes[process_id].job_id]
    job.set, job.groups_wanted = Span(0, groups), groups if asked else 0
    process = talk.core.processes[process_id]
    there = SmSet(first=0, count=groups, group_sms=GROUP_SMS)
    process.usage = replace(process.usage, in_set=there, following_streams=1)


@pytest.mark.parametrize(("held", "sms"), [(3.4, 3), (0.2, 1), (SMS, SMS), (200.0, SMS)])
def test_a_job_counts_for_the_sms_that_its_kernels_held_when_they_were_recorded(held, sms):
    talk = talking()

    record(talk, 1, held)

    assert counts(talk, 1) == (sms, Source.KERNELS)


def test_what_is_not_known_counts_for_all_that_it_may_use():
    assert counts(talking(), 1) == (SMS, Source.ALL)


def test_a_percentage_of_mps_bounds_what_a_job_counts_for():
    talk = talking()
    for process in talk.core.processes.values():
        process.mps_percent = 25.0
    record(talk, 1, 100.0)

    assert counts(talk, 1) == (32, Source.KERNELS)
    assert counts(talk, 2) == (32, Source.ALL)


def test_a_record_on_fewer_sms_than_it_may_use_now_says_nothing():
    talk = talking()

    record(talk, 1, 10.0, on=SMS // 2)

    assert counts(talk, 1) == (SMS, Source.ALL)


@pytest.mark.parametrize(
    "options",
    [{"sm_counts": {0: SMS}}, MPS | {"sm_counts": {0: 0}}, MPS | {"mps_gpus": frozenset({1})}],
)
def test_nobody_counts_where_contexts_take_turns_or_sms_are_not_known(options):
    talk = talking(options=options)
    record(talk, 1, 4.0)

    assert demand(talk, 1) is None
    assert "by SMs" not in lines(talk, 1)


def test_a_set_of_its_own_counts_whole_however_little_of_it_is_filled():
    talk = talking(options=GREEN)
    record(talk, 1, 2.0, on=4 * GROUP_SMS)

    put_on_set(talk, 1, 4)

    assert counts(talk, 1) == (4 * GROUP_SMS, Source.SET)


def test_so_does_one_that_a_plan_has_jobs_take_turns_on():
    talk = talking(options=GREEN)
    record(talk, 1, 2.0, on=4 * GROUP_SMS)

    put_on_set(talk, 1, 4, asked=False)
    talk.core.jobs[1].part = 1

    assert counts(talk, 1) == (4 * GROUP_SMS, Source.SET)


def test_of_what_is_left_for_several_each_counts_for_what_it_fills():
    talk = talking(options=GREEN)
    record(talk, 1, 2.0, on=4 * GROUP_SMS)

    put_on_set(talk, 1, 4, asked=False)
    put_on_set(talk, 2, 4, asked=False)

    assert counts(talk, 1) == (2, Source.KERNELS)
    assert counts(talk, 2) == (4 * GROUP_SMS, Source.ALL)


def test_who_is_beside_mps_has_all_sms_when_its_context_has_the_gpu():
    talk = talking()
    record(talk, 1, 4.0)

    talk.core.processes[1].mps_misses = MPS_MISSES

    assert counts(talk, 1) == (SMS, Source.ALL)


def test_processes_of_a_group_add_up_to_what_there_is():
    talk = talking()
    talk.attach(3, BATCH, job_id=1)
    record(talk, 1, 100.0)
    record(talk, 3, 20.0)
    group = talk.core.group_of(talk.core.jobs[1])

    assert demand_of_group(group, 0, talk.core.options).sms == 120
    record(talk, 3, 50.0)
    assert demand_of_group(group, 0, talk.core.options).sms == SMS


def test_processes_on_one_set_do_not_count_for_more_than_it():
    talk = talking(options=GREEN)
    talk.attach(3, BATCH, job_id=1)
    for process_id in (1, 3):
        put_on_set(talk, process_id, 4)
    group = talk.core.group_of(talk.core.jobs[1])

    assert demand_of_group(group, 0, talk.core.options).sms == 4 * GROUP_SMS
    assert demand(talk, 1).most_sms == 4 * GROUP_SMS


def classify(talk, process_id, bound):
    shares = tuple(float(b is bound) for b in Bound)
    mix = Mix(shares=shares, operations=100, untimed=0, at_ns=0)
    talk.say(WorkClassified(now_ns=talk.now_ns, process_id=process_id, mix=mix))


def paired(*processes):
    """The first process has the turn and the second runs beside it."""
    talk = talking(*processes)
    for process_id in processes:
        classify(talk, process_id, KINDS[process_id])
    talk.works(processes[0])
    talk.waits(*processes[1:])
    talk.works(*processes[:2])
    return talk


def test_explain_says_by_what_the_time_of_both_is_split():
    talk = paired(1, 2)
    record(talk, 2, 4.0)

    assert (
        "gpu time that several jobs use at once is split by SMs, an estimate: "
        f"{SMS} for it (all it may use: its kernels are not known), "
        "4 for j-2 (the grids of its kernels)"
    ) in lines(talk, 1)


def test_explain_says_nothing_of_whom_it_takes_turns_with():
    talk = paired(1, 2, 3)

    assert "j-3 (all it may use" not in lines(talk, 1)
    assert "split by SMs" not in lines(talk, 3)


def test_who_takes_no_turns_may_run_beside_a_job():
    talk = talking(1, policy="priority")
    talk.attach(2, LATENCY)

    assert f"{SMS} for j-2 (all it may use" in lines(talk, 1)


def pay(talk, *, split, ms=20):
    """Both work for `ms`; `split` gives the percentage of it that each is charged."""
    for process_id, part in split.items():
        usage = talk.usages[process_id]
        talk.sample(
            process_id,
            after_ms=ms / 2,
            shared_ns=usage.shared_ns + ms * MS * part // 100,
            even_ns=usage.even_ns + ms * MS // 2,
        )


@pytest.mark.parametrize(
    ("split", "next_one"), [({1: 97, 2: 3}, 2), ({1: 50, 2: 50}, 1), ({1: 3, 2: 97}, 1)]
)
def test_who_took_little_of_what_both_had_comes_next(split, next_one):
    """From then on both are bound by the same resource, and take turns."""
    talk = paired(1, 2)
    pay(talk, split=split, ms=10)
    classify(talk, 2, KINDS[1])
    talk.rests(1, 2)
    talk.tick(after_ms=5)  # nobody has the turn
    talk.waits(1, 2)

    assert holder(talk) == next_one


def holder(talk):
    """Return the process of the group that holds the turn."""
    (turns,) = talk.core.rings.turns.values()
    (process_id,) = talk.core.groups[turns.holder].processes
    return process_id


@pytest.mark.parametrize("split", [{1: 3, 2: 97}, {1: 50, 2: 50}, {1: 97, 2: 3}])
def test_a_turn_of_two_lasts_as_long_whatever_each_pays(split):
    """Otherwise a job that is charged little would hold up the others for many quanta."""
    talk = paired(1, 2, 3)
    quantum_ms = talk.core.options.quantum_ns // MS
    first = holder(talk)

    pay(talk, split=split, ms=2 * quantum_ms - 2)
    has_it_still = holder(talk) == first
    pay(talk, split=split, ms=4)

    assert has_it_still
    assert holder(talk) != first


def test_who_pays_little_does_not_become_owed_time_while_it_runs():
    talk = talking(1, policy="priority")
    talk.attach(2, LATENCY)
    talk.works(1, 2)

    for _ in range(40):
        pay(talk, split={1: 1, 2: 99}, ms=100)

    (turns,) = talk.core.rings.turns.values()
    assert not turns.overdue_tiers


def test_energy_goes_by_what_each_pays():
    talk = paired(1, 2)
    talk.core.energy.read({0: 1000}, talk.now_ns)
    pay(talk, split={1: 90, 2: 10}, ms=10)

    talk.core.energy.read({0: 2000}, talk.now_ns)

    assert [talk.core.energy.of_job(job_id) for job_id in (1, 2)] == [900, 100]


def test_the_gpu_time_of_a_job_is_what_it_pays_and_an_estimate():
    talk = paired(1, 2)
    pay(talk, split={1: 90, 2: 10}, ms=10)

    assert [talk.core.jobs[j].gpu_ns for j in (1, 2)] == [9 * MS, MS]
    assert [talk.core.jobs[j].shared_ns for j in (1, 2)] == [9 * MS, MS]
