"""When iterations begin, and how much memory each job may hold meanwhile."""

from dataclasses import replace

import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk

from tandemd.core.curves.curves import Curve
from tandemd.core.events import (
    CloseGates,
    CurveRecorded,
    OpenGates,
    SetMemoryLease,
    SetMemoryPlace,
    SetMemoryWait,
    SetStepLimit,
)
from tandemd.core.explain.explain import explain
from tandemd.core.model import NO_LIMIT, MemoryWait, Options, WaitReason

CAPACITY, REST, PEAK = 100, 10, 70
# Up to 70 in 10 ms of work, and back down in 10 ms.
TENT = Curve(
    tuple(n * 2 * MS for n in range(10)), (22, 34, 46, 58, PEAK, 58, 46, 34, 22, REST), 20 * MS
)
MPS = {"mps_gpus": frozenset({0}), "max_hold_ns": 100 * MS}


def conversation(policy="curves", curve=TENT, **options):
    """Two trainers, each at the beginning of an iteration."""
    talk = Talk(Options(policy=policy, **(MPS | options)))
    talk.core.memory.line.capacity_bytes = {0: CAPACITY}
    for process_id in (1, 2):
        talk.attach(process_id)
        talk.sample(process_id, steps=1, stopped=1, device_bytes=REST, peak_bytes=PEAK)
        if curve is not None:
            talk.say(CurveRecorded(now_ns=talk.now_ns, process_id=process_id, curve=curve))
    return talk


def goes_on(talk, process_id, *, done_ms, held, after_ms=1.0):
    """The process has done `done_ms` of its iteration and holds `held`."""
    since_ns = talk.usages[process_id].step_work_ns
    work_ns = since_ns + int(done_ms * MS)
    figures = {"work_ns": work_ns, "exclusive_ns": work_ns, "device_bytes": held, "busy": True}
    rest = {"waiting_threads": 0, "wait_reason": WaitReason.NONE}
    return talk.sample(process_id, after_ms=after_ms, **figures, **rest)


def ends(talk, process_id, *, after_ms=1.0):
    """The process has ended an iteration and stands before the next one."""
    usage = talk.usages[process_id]
    return talk.sample(
        process_id,
        after_ms=after_ms,
        steps=usage.steps + 1,
        stopped=usage.steps + 1,
        step_work_ns=usage.work_ns,
        device_bytes=REST,
        busy=False,
        waiting_threads=1,
        wait_reason=WaitReason.GATE,
    )


def allowed(talk, process_id):
    """Return the steps that it was last told it may end; 0: no bound."""
    tenant = talk.core.shifts.tenant(process_id)
    return tenant.steps_told if tenant else 0


def lease(talk, process_id):
    return talk.core.processes[process_id].lease_bytes


def begun(talk):
    """Process 1 is 4 ms into an iteration, and 2 stands before one."""
    goes_on(talk, 1, done_ms=2, held=34)
    talk.waits(2)
    return goes_on(talk, 1, done_ms=4, held=46)


@pytest.mark.parametrize(
    ("starts_ns", "held_bytes", "length_ns"),
    [
        ((), (), 0),
        ((0,), (1, 2), 5),
        ((1, 2), (1, 2), 5),
        ((0, 2, 2), (1, 2, 3), 5),
        ((0, 4), (1, 2), 3),
        ((0,), (-1,), 5),
    ],
)
def test_what_is_no_curve_of_memory_is_refused(starts_ns, held_bytes, length_ns):
    with pytest.raises(ValueError, match="a curve"):
        Curve(starts_ns, held_bytes, length_ns)


def test_nobody_is_held_back_where_all_peaks_fit_together():
    talk = conversation()
    talk.core.memory.line.capacity_bytes = {0: 2 * PEAK}

    begun(talk)

    assert allowed(talk, 1) == allowed(talk, 2) == 0
    assert lease(talk, 1) == lease(talk, 2) == NO_LIMIT
    assert not talk.core.groups[(1000, "j:2")].is_kept


def test_who_holds_more_than_its_curve_says_counts_with_that():
    talk = conversation()
    talk.core.memory.line.capacity_bytes = {0: 2 * PEAK}

    talk.sample(1, device_bytes=PEAK + 1)

    assert lease(talk, 1) < NO_LIMIT


@pytest.mark.parametrize(
    ("one", "other", "uid"), [(NORMAL, BATCH, 1000), (LATENCY, LATENCY, 1000), (BATCH, BATCH, 1001)]
)
def test_only_best_effort_jobs_of_one_class_and_user_share_a_turn(one, other, uid):
    talk = Talk(Options(policy="curves", **MPS))
    talk.attach(1, one)
    talk.attach(2, other, uid=uid)

    groups = talk.core.groups.values()

    assert not talk.core.policy.companions.may_join(*groups, talk.core.options)


def test_an_iteration_begins_when_the_other_has_done_its_shift():
    talk = conversation()

    begun(talk)
    kept_at = allowed(talk, 2)
    goes_on(talk, 1, done_ms=12, held=58)

    assert kept_at == 1  # it has ended one, and may not end another
    assert allowed(talk, 2) == 2
    assert talk.of(OpenGates, 2)
    assert talk.core.rings.turns[frozenset({0}), 0].companion is not None


def test_until_then_it_wants_no_turn_and_the_core_looks_again():
    talk = conversation()

    begun(talk)

    group = talk.core.groups[(1000, "j:2")]
    assert group.is_kept
    assert not group.wants
    assert 1 <= talk.core.shifts.wake_at_ns / MS - talk.now_ns / MS <= 8
    assert "has to do" in explain(talk.core, talk.core.jobs[2], talk.now_ns).summary


def test_the_core_looks_again_for_the_gpu_that_needs_it_first():
    talk = conversation(mps_gpus=frozenset({0, 1}))
    talk.core.memory.line.capacity_bytes = {0: CAPACITY, 1: CAPACITY}
    for process_id in (3, 4):
        talk.attach(process_id, gpu=1)
        talk.sample(process_id, steps=1, stopped=1, device_bytes=REST, peak_bytes=PEAK)
        talk.say(CurveRecorded(now_ns=talk.now_ns, process_id=process_id, curve=TENT))
    begun(talk)
    later_ns = talk.core.shifts.wake_at_ns

    goes_on(talk, 3, done_ms=6, held=58)
    talk.waits(4)

    assert "j-3 has to do" in explain(talk.core, talk.core.jobs[4], talk.now_ns).summary
    assert talk.now_ns < talk.core.shifts.wake_at_ns < later_ns


def test_without_the_policy_nobody_is_kept():
    talk = conversation(policy="priority")

    begun(talk)

    assert not talk.core.groups[(1000, "j:2")].is_kept
    assert talk.core.shifts.tenant(2) is None
    assert lease(talk, 1) == NO_LIMIT


def finds(talk, process_id, iterations):
    """So many ends of its iterations were found, and its host thread runs on."""
    usage = talk.usages[process_id]
    figures = {"busy": True, "iterations": iterations, "step_work_ns": usage.work_ns}
    return talk.sample(process_id, after_ms=1.0, **figures)


def unmarked(**options):
    """Like `begun`, but neither marks its iterations; two of each were found."""
    talk = Talk(Options(policy="curves", **(MPS | options)))
    talk.core.memory.line.capacity_bytes = {0: CAPACITY}
    for process_id in (1, 2):
        talk.attach(process_id)
        talk.sample(process_id, iterations=1, device_bytes=REST, peak_bytes=PEAK)
        talk.say(CurveRecorded(now_ns=talk.now_ns, process_id=process_id, curve=TENT))
    goes_on(talk, 1, done_ms=4, held=46)
    finds(talk, 2, 2)
    return talk


def test_who_marks_no_iteration_is_stopped_where_its_end_is_found():
    talk = unmarked()
    group, told = talk.core.groups[(1000, "j:2")], talk.of(SetStepLimit)
    talk.waits(2)
    kept = group.is_kept, group.wants

    goes_on(talk, 1, done_ms=12, held=58)
    told += talk.of(SetStepLimit)

    assert kept == (True, False)
    assert (group.is_kept, group.wants) == (False, True)
    assert not told  # its shim counts only marks


def test_who_stands_at_its_peak_goes_on_where_the_other_waits_for_what_it_holds():
    turned = Curve(
        tuple(n * 2 * MS for n in range(10)),
        (PEAK, 46, 22, REST, 22, 34, 46, 58, 64, PEAK),
        20 * MS,
    )
    talk = unmarked()
    talk.say(CurveRecorded(now_ns=talk.now_ns, process_id=2, curve=turned))
    talk.sample(2, device_bytes=50)
    waits_for(talk, 1, 30, work_ns=6 * MS)
    goes_on(talk, 2, done_ms=4, held=22)

    assert talk.core.shifts.tenant(2).is_within
    assert lease(talk, 1) >= 46 + 30


def stopped(*, end_bytes, partner_held, done_ms=1, wants=0, partner=TENT, partner_ends=1):
    """Unmarked, 2 holds `end_bytes` at each found end; 1 is within an iteration beside it."""
    talk = Talk(Options(policy="curves", **MPS))
    talk.core.memory.line.capacity_bytes = {0: CAPACITY}
    for process_id, iterations in ((1, partner_ends), (2, 1)):
        talk.attach(process_id)
        talk.sample(process_id, iterations=iterations, device_bytes=REST, peak_bytes=PEAK)
    talk.say(CurveRecorded(now_ns=talk.now_ns, process_id=2, curve=TENT))
    if partner is not None:
        talk.say(CurveRecorded(now_ns=talk.now_ns, process_id=1, curve=partner))
    goes_on(talk, 1, done_ms=done_ms, held=partner_held)
    if wants:
        waits_for(talk, 1, wants)
    for iterations, held in enumerate(end_bytes, start=2):
        goes_on(talk, 2, done_ms=1, held=held)
        finds(talk, 2, iterations)
    return talk


@pytest.mark.parametrize(("held", "is_kept"), [(30, True), (31, False)])
def test_who_stands_within_an_iteration_goes_on_where_the_other_could_not_end_beside_it(
    held, is_kept
):
    talk = stopped(end_bytes=[held], partner_held=22)  # which needs 48 more

    assert talk.core.groups[(1000, "j:2")].is_kept is is_kept


def test_it_goes_on_as_soon_as_the_other_is_found_to_need_more():
    low_first = Curve(TENT.starts_ns, (REST, *TENT.held_bytes[:-1]), TENT.length_ns)
    partner = {"partner": low_first, "partner_held": 22, "done_ms": 19}
    talk = stopped(end_bytes=[46], **partner, wants=12)  # all that it needs
    kept_at_first = talk.core.groups[(1000, "j:2")].is_kept

    goes_on(talk, 1, done_ms=22, held=22)  # longer than recorded, so it may reach its peak again

    assert kept_at_first
    assert not talk.core.groups[(1000, "j:2")].is_kept
    assert lease(talk, 2) == PEAK  # its need until its end is set aside first


@pytest.mark.parametrize(
    ("end_bytes", "is_kept"),
    [([34], False), ([50, 34], True), ([34, 34], True), ([22, 34], False)],
)
def test_beside_one_of_whom_nothing_is_known_it_stands_where_it_holds_least(end_bytes, is_kept):
    talk = stopped(end_bytes=end_bytes, partner_held=22, wants=40, partner=None, partner_ends=0)

    assert talk.core.groups[(1000, "j:2")].is_kept is is_kept


def test_unmarked_iterations_are_left_alone_where_none_are_looked_for():
    talk = unmarked(find_iterations=False)

    assert not talk.core.groups[(1000, "j:2")].is_kept


def test_an_unmarked_iteration_that_fits_begins_before_its_gate_is_closed():
    talk = unmarked()
    goes_on(talk, 1, done_ms=16, held=22)
    goes_on(talk, 2, done_ms=12, held=58)

    actions = finds(talk, 1, 2)

    assert talk.core.shifts.tenant(1).ends_allowed == 3
    assert not any(isinstance(action, CloseGates) for action in actions)


def test_from_the_first_mark_on_only_marks_count():
    talk = unmarked()

    stands = {"waiting_threads": 1, "wait_reason": WaitReason.GATE}
    talk.sample(2, after_ms=1.0, steps=1, stopped=1, **stands)
    stopped_at = allowed(talk, 2)
    goes_on(talk, 1, done_ms=12, held=58)

    assert stopped_at == 1
    assert allowed(talk, 2) == 2


def test_iterations_that_no_shift_makes_fit_come_one_after_the_other():
    talk = conversation(curve=Curve((0, 20 * MS), (PEAK, REST), 20 * MS))

    begun(talk)
    goes_on(talk, 1, done_ms=19, held=PEAK)
    kept_at = allowed(talk, 2)
    told = explain(talk.core, talk.core.jobs[2], talk.now_ns).summary
    ends(talk, 1)

    assert kept_at == 1
    assert "has to do 1.0 ms more" in told  # its whole iteration
    assert (allowed(talk, 1), allowed(talk, 2)) == (2, 2)  # who was served less comes first


def test_together_they_may_hold_no_more_than_there_is_and_the_first_what_it_needs():
    talk = conversation()
    begun(talk)

    goes_on(talk, 1, done_ms=12, held=58)
    at_first = lease(talk, 1), lease(talk, 2)
    goes_on(talk, 1, done_ms=16, held=34)

    assert at_first == (58, 42)
    assert (lease(talk, 1), lease(talk, 2)) == (34, 66)
    told = [(action.process_id, action.lease_bytes) for action in talk.of(SetMemoryLease)]
    assert told == [(1, 34), (2, 66)]  # taken back before it is lent


def test_who_has_ended_no_iteration_may_need_everything():
    talk = conversation()
    goes_on(talk, 1, done_ms=2, held=34)
    talk.waits(2)

    talk.attach(3)
    before = lease(talk, 3)
    waits_for(talk, 3, 60)
    ends(talk, 1)

    assert before == CAPACITY - PEAK - REST  # all that 1 may still need is set aside
    assert (allowed(talk, 1), allowed(talk, 2)) == (2, 1)
    assert lease(talk, 3) == CAPACITY - 2 * REST


def waits_for(talk, process_id, size, *, tried_round=0, **figures):
    """The process waits because its lease is used up."""
    wait = MemoryWait(
        ticket=1, size_bytes=size, is_quota=True, is_alone=True, tried_round=tried_round
    )
    figures |= {"busy": False, "waiting_threads": 0, "wait_reason": WaitReason.NONE}
    return talk.sample(process_id, after_ms=1.0, memory_wait=wait, **figures)


def test_who_drifts_waits_for_memory_and_is_never_refused_for_it():
    talk = conversation()
    begun(talk)
    goes_on(talk, 1, done_ms=12, held=58)
    goes_on(talk, 2, done_ms=6, held=40)

    waits_for(talk, 2, 20)
    (place,) = talk.of(SetMemoryPlace, 2)
    waits_for(talk, 2, 20, tried_round=place.round)
    while_full = talk.core.memory.line.waiters[2].is_refused, lease(talk, 2)
    goes_on(talk, 1, done_ms=17, held=22)

    assert while_full == (False, 42)
    assert lease(talk, 2) == CAPACITY - 22
    assert talk.of(SetMemoryPlace, 2)[0].round != place.round  # it tries again


def test_nobody_begins_while_another_waits_for_memory_that_it_can_have():
    talk = conversation()
    begun(talk)

    waits_for(talk, 1, 12, work_ns=11 * MS, device_bytes=58)
    while_it_waits = allowed(talk, 2)
    talk.usages[1] = replace(talk.usages[1], memory_wait=None)
    goes_on(talk, 1, done_ms=11, held=58)

    assert (while_it_waits, allowed(talk, 2)) == (1, 2)


def test_nobody_is_kept_for_longer_than_the_longest_hold():
    talk = conversation(curve=Curve((0, 20 * MS), (PEAK, REST), 20 * MS))
    begun(talk)

    goes_on(talk, 1, done_ms=5, held=PEAK, after_ms=98)
    kept_at = allowed(talk, 2)
    talk.tick(after_ms=2)

    assert kept_at == 1
    assert allowed(talk, 2) == 2


def test_an_iteration_that_goes_on_for_longer_than_recorded_may_need_its_peak_again():
    talk = conversation()
    begun(talk)

    goes_on(talk, 1, done_ms=12, held=58)
    goes_on(talk, 1, done_ms=25, held=40)

    assert lease(talk, 1) == PEAK


def test_without_a_curve_the_peak_counts_all_the_time():
    talk = conversation(curve=None)

    begun(talk)

    assert allowed(talk, 2) == 1
    assert lease(talk, 1) == CAPACITY - REST
    lines = explain(talk.core, talk.core.jobs[1], talk.now_ns).lines
    assert any("no memory curve yet: it counts as 70 B" in line for line in lines)


def test_allocations_of_all_of_them_wait():
    talk = Talk(Options(policy="curves", **MPS))
    talk.core.memory.line.capacity_bytes = {0: CAPACITY}

    talk.attach(1)

    assert talk.of(SetMemoryWait, 1)[0].wait_ns > 0


def test_with_another_policy_everything_is_given_back():
    talk = conversation()
    begun(talk)

    talk.policy("pair")

    assert [action.steps for action in talk.of(SetStepLimit)] == [0, 0]
    assert {action.lease_bytes for action in talk.of(SetMemoryLease)} == {NO_LIMIT}
    assert {action.wait_ns for action in talk.of(SetMemoryWait)} == {0}
    assert not talk.core.groups[(1000, "j:2")].is_kept


@pytest.mark.parametrize(
    ("what", "options", "job_class", "spec"),
    [
        ("only under mps", {"mps_gpus": frozenset()}, NORMAL, {}),
        ("latency class do not wait", {}, LATENCY, {}),
        ("its memory moves with its turns", {}, NORMAL, {"swappable": True}),
    ],
)
def test_what_curves_do_not_decide_is_said(what, options, job_class, spec):
    talk = Talk(Options(policy="curves", **(MPS | options)))
    talk.core.memory.line.capacity_bytes = {0: CAPACITY}
    talk.attach(1, job_class, **spec)
    talk.attach(2, BATCH)

    lines = explain(talk.core, talk.core.jobs[1], talk.now_ns).lines

    assert any(what in line for line in lines)
    assert talk.core.shifts.tenant(1) is None


def test_a_job_of_several_processes_is_left_alone():
    talk = conversation()
    talk.attach(3, job_id=1)

    begun(talk)

    assert talk.core.shifts.tenant(1) is None
    assert lease(talk, 1) == NO_LIMIT
    lines = explain(talk.core, talk.core.jobs[1], talk.now_ns).lines
    assert any("it has 2 processes" in line for line in lines)


def test_a_process_that_leaves_is_forgotten():
    talk = conversation()
    begun(talk)

    talk.leave(1)

    assert talk.core.shifts.tenant(1) is None
    assert allowed(talk, 2) == 0
