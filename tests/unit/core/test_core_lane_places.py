"""Conversations under the policy `lanes`: who is admitted, and whose iteration it is."""

from dataclasses import replace

import pytest
import talk as talked
from talk import MS, Talk

from tandemd.core.events import CloseGates, OpenGates, SetLane, SetMemoryLimit
from tandemd.core.explain.explain import explain
from tandemd.core.model import JobSpec, Options, WaitReason

MIB = 1 << 20
TOTAL = 1024 * MIB


@pytest.fixture
def talk():
    return conversation()


def conversation(**options):
    found = Talk(Options(policy="lanes", **options))
    found.core.memory.line.capacity_bytes = {0: TOTAL}
    return found


def come(talk, number, persistent=0, ephemeral=0, **spec):
    """Attaches a process, which waits at its gate for the first allocation."""
    sizes = {"persistent_bytes": persistent * MIB, "ephemeral_bytes": ephemeral * MIB}
    talk.attach(number, **sizes, **spec)
    gate = {"waiting_threads": 1, "wait_reason": WaitReason.GATE}
    return talk.sample(number, after_ms=1, **gate)


def run(talk, number, held, **figures):
    """The process is at work and holds `held` MiB."""
    figures = {"waiting_threads": 0, "wait_reason": WaitReason.NONE} | figures
    return talk.sample(number, after_ms=1, busy=True, device_bytes=held * MIB, **figures)


def stop(talk, number, held):
    """The process marks the end of an iteration and stops there, and its GPU work drains."""
    steps = talk.core.processes[number].usage.steps + 1
    told = {"steps": steps, "stopped": steps, "device_bytes": held * MIB}
    talk.sample(number, after_ms=1, busy=True, **told)
    at_mark = talk.actions
    talk.sample(number, after_ms=1, busy=False)
    return at_mark


def group(talk, number):
    return talk.core.group_of(talk.core.jobs[number])


def summary(talk, number):
    return explain(talk.core, talk.core.jobs[number], talk.now_ns).summary


def opened(actions):
    return {p for a in actions if isinstance(a, OpenGates) for p in a.process_ids}


def closed(actions):
    return {p for a in actions if isinstance(a, CloseGates) for p in a.process_ids}


def test_who_does_not_fit_finds_its_gate_closed_from_the_start(talk):
    assert opened(come(talk, 1, 100, 500)) == {1}

    assert closed(talk.attach(2, persistent_bytes=600 * MIB, ephemeral_bytes=MIB)) == {2}
    talk.sample(2, waiting_threads=1, wait_reason=WaitReason.GATE)

    assert summary(talk, 2) == (
        "1st in line to come onto the gpu with 600 MiB for good and 1 MiB an iteration; "
        "176 MiB of that has to become free"
    )
    assert opened(talk.leave(1)) == {2}


def test_who_stood_in_line_for_long_does_not_make_up_for_it_when_it_comes(talk):
    for number in (1, 2):
        come(talk, number, 300, 100)
    come(talk, 3, 500, 100)
    talked.run(talk, (1, 2), 2000)
    talk.waits(3)

    talk.leave(2)
    got = talked.run(talk, (1, 3), 1000)

    assert min(got.values()) > 400


def test_what_the_dead_held_is_not_given_away_before_the_driver_has_it_back(talk):
    come(talk, 1, 100, 500)
    come(talk, 2, 600, 1)
    run(talk, 1, 600)

    assert opened(talk.leave(1)) == set()
    assert opened(talk.tick(after_ms=999)) == set()
    assert opened(talk.tick(after_ms=1)) == {2}


def test_without_lanes_the_same_job_is_let_in():
    talk = Talk(Options(policy="fair"))
    talk.core.memory.line.capacity_bytes = {0: TOTAL}
    come(talk, 1, 100, 500)

    talk.attach(2, persistent_bytes=600 * MIB, ephemeral_bytes=MIB)
    assert not [a for a in talk.actions if isinstance(a, SetLane)]
    talk.sample(1, waiting_threads=0, wait_reason=WaitReason.NONE)

    assert opened(talk.tick(after_ms=2)) == {2}  # its turn comes, whatever it needs


def test_what_was_promised_is_the_limit(talk):
    talk.attach(1, **promise(100, 500))

    assert group(talk, 1).memory_limit_bytes == 600 * MIB
    assert [told.limit_bytes for told in talk.of(SetMemoryLimit)] == [600 * MIB]


def test_what_a_job_of_a_group_takes_is_left_to_the_others_at_once(talk):
    for number in (1, 2):
        come(talk, number, 100, 200, group="ranks")
    limit = group(talk, 1).memory_limit_bytes

    run(talk, 1, 150)

    assert [told.limit_bytes for told in talk.of(SetMemoryLimit, 2)] == [limit - 150 * MIB]


def test_behind_a_change_all_are_looked_at_again_though_nothing_else_happens(talk):
    come(talk, 1, 100, 500)
    come(talk, 2, 100, 500)
    talk.tick(after_ms=1)
    assert talk.core.lanes.wake_at_ns is None

    talk.leave(1)

    assert talk.core.lanes.wake_at_ns == talk.now_ns + MS


def test_who_waits_in_line_sees_what_it_promised_and_not_the_device(talk):
    come(talk, 1, 100, 500)
    talk.attach(2, **promise(600, 1))
    assert [told.limit_bytes for told in talk.of(SetMemoryLimit, 2)] == [601 * MIB]
    talk.sample(2, waiting_threads=1, wait_reason=WaitReason.GATE)

    assert opened(talk.leave(1)) == {2}
    assert not talk.of(SetMemoryLimit, 2), "it stays what it was"


def test_a_lane_passes_on_only_at_the_end_of_an_iteration(talk):
    come(talk, 1, 100, 500)
    run(talk, 1, 600)
    come(talk, 2, 100, 600)  # joins the lane of the first, which grows
    assert talk.core.lanes.of(group(talk, 1)).steps == {1: 1}

    run(talk, 1, 600, exclusive_ns=10_000 * MS)  # however long it takes
    assert group(talk, 2).barred
    assert (
        "waits for its next iteration: that of j-1, which shares its lane, is not over"
        in summary(talk, 2)
    )
    at_mark = stop(talk, 1, 100)

    assert closed(at_mark) == {1}
    assert not group(talk, 2).barred
    assert group(talk, 1).barred


def test_a_lane_goes_to_who_came_first_of_those_who_wait(talk):
    come(talk, 1, 100, 500)
    run(talk, 1, 600)
    come(talk, 2, 100, 600)
    come(talk, 3, 100, 600)  # all three share one lane

    stop(talk, 1, 100)
    talk.sample(1, after_ms=1, waiting_threads=1, wait_reason=WaitReason.GATE)

    assert [group(talk, number).barred for number in (1, 2, 3)] == [True, False, True]


def turn(talk, *numbers):
    """Whoever's turn it is runs one iteration, and then wants the next at once."""
    (number,) = (one for one in numbers if talk.is_open(one))
    run(talk, number, 400)
    done_ns = talk.usages[number].exclusive_ns + 100 * MS
    talk.sample(number, after_ms=100, exclusive_ns=done_ns)
    stop(talk, number, 100)
    talk.waits(number, after_ms=1)
    talk.tick(after_ms=1)
    return number


@pytest.mark.parametrize("count", [2, 3])
def test_who_always_wants_gets_every_turn_that_is_its(count):
    talk = conversation(lane_order="fair")
    numbers = range(1, count + 1)
    for number in numbers:
        come(talk, number, 100, 600)

    turns = [turn(talk, *numbers) for _ in range(10 * count)]

    assert turns == [*numbers] * 10


def test_who_was_served_alone_for_hours_shares_its_lane_as_an_equal():
    talk = conversation(lane_order="fair")
    come(talk, 1, 100, 600)
    run(talk, 1, 200, exclusive_ns=2 * 3600 * 1_000 * MS)
    for number in (2, 3):
        come(talk, number, 100, 600)

    turns = [turn(talk, 1, 2, 3) for _ in range(30)]

    assert [turns.count(number) for number in (1, 2, 3)] == [10, 10, 10]


def test_who_rested_for_hours_makes_up_for_no_turns():
    talk = conversation(lane_order="fair")
    for number in (1, 2, 3):
        come(talk, number, 100, 600)
    assert turn(talk, 1, 2, 3) == 1
    run(talk, 2, 400)
    stop(talk, 2, 100)
    talk.rests(2)
    for number in (3, 1):
        run(talk, number, 400, exclusive_ns=3600 * 1_000 * MS)
        stop(talk, number, 100)
        talk.waits(number)
    talk.waits(2)

    turns = [turn(talk, 1, 2, 3) for _ in range(30)]

    assert [turns.count(number) for number in (1, 2, 3)] == [10, 10, 10]


def test_a_limit_that_came_too_late_for_a_mark_ends_the_next_iteration(talk):
    come(talk, 1, 100, 500)
    run(talk, 1, 600)  # it has marked three steps since that look
    come(talk, 2, 100, 600)
    assert talk.core.lanes.of(group(talk, 1)).steps == {1: 1}

    run(talk, 1, 600, steps=3)
    assert group(talk, 2).barred
    talk.sample(1, after_ms=1, steps=4, stopped=4, device_bytes=100 * MIB, busy=False)
    talk.sample(1, after_ms=1)

    assert not group(talk, 2).barred


def test_who_stops_is_not_followed_before_its_work_has_drained(talk):
    come(talk, 1, 100, 500)
    run(talk, 1, 600)
    come(talk, 2, 100, 600)
    talk.sample(1, after_ms=1, steps=1, stopped=1, busy=True, device_bytes=600 * MIB)

    talk.sample(1, after_ms=1)
    assert group(talk, 2).barred
    talk.sample(1, after_ms=1, busy=False, device_bytes=100 * MIB)

    assert not group(talk, 2).barred


def test_who_keeps_more_than_it_promised_is_counted_with_it(talk):
    come(talk, 1, 100, 500)
    run(talk, 1, 600)
    come(talk, 2, 100, 600)  # 100 + 100 + 600 of 1024 MiB

    stop(talk, 1, 400)  # 400 + 100 + 600 exceed 1024 MiB

    assert group(talk, 2).barred
    assert talk.core.lanes.of(group(talk, 1)).lanes.alone == [(1000, "j:1")]
    talk.leave(1)
    talk.sample(2, after_ms=1)
    assert not group(talk, 2).barred


def test_an_unknown_job_has_the_gpu_until_it_is_known(talk):
    come(talk, 1)
    come(talk, 2, 100, 100)
    assert group(talk, 2).barred

    run(talk, 1, 500, peak_bytes=500 * MIB)
    marks = {"iteration_peak_bytes": 500 * MIB, "iteration_end_bytes": 100 * MIB}
    run(talk, 1, 500, steps=1, **marks)
    assert group(talk, 2).barred
    run(talk, 1, 500, steps=2, **marks)
    talk.sample(2, after_ms=1)

    assert not group(talk, 2).barred
    assert group(talk, 1).memory_limit_bytes == 532 * MIB  # a sixteenth more, in whole granules


def test_a_second_unknown_job_runs_while_the_others_are_between_iterations(talk):
    come(talk, 1, 300, 600)
    run(talk, 1, 900)
    come(talk, 2)
    assert group(talk, 2).barred

    stop(talk, 1, 300)

    assert not group(talk, 2).barred
    assert group(talk, 2).memory_limit_bytes == TOTAL - 300 * MIB
    talk.sample(1, after_ms=1, waiting_threads=1, wait_reason=WaitReason.GATE)
    assert "that of j-2, which runs alone to be measured, is not over" in summary(talk, 1)


def test_a_job_that_marks_nothing_counts_as_it_is_once_iterations_are_found(talk):
    come(talk, 1)
    come(talk, 2, 100, 100)

    run(talk, 1, 500, peak_bytes=500 * MIB, iterations=3)
    talk.sample(2, after_ms=1)

    assert not group(talk, 2).barred


def test_another_policy_lets_everybody_go_on(talk):
    come(talk, 1, 100, 900)
    come(talk, 2, 100, 900)
    assert group(talk, 2).barred

    talk.policy("fair")

    assert not group(talk, 2).barred
    assert SetLane(process_id=2, holds=False) in talk.actions


def test_more_than_the_gpu_has_is_refused_at_the_start(talk):
    talk.register(1, persistent_bytes=TOTAL, ephemeral_bytes=1)

    objection = talk.core.objection_to(talk.core.jobs[1].spec)

    assert objection.startswith("it may use 1 GiB, 1 B more than the largest gpu has; lower")


@pytest.mark.parametrize(("ephemeral", "is_too_much"), [(24, False), (25, True)])
def test_contexts_are_counted_as_the_driver_says(talk, ephemeral, is_too_much):
    come(talk, 1, 100, 400)
    for _ in range(2):
        talk.audit(p1=(200 * MIB,))

    come(talk, 2, 100, ephemeral)  # two contexts of 200 MiB leave 124

    assert group(talk, 2).barred is is_too_much


def test_the_shortest_of_those_that_ran_before_comes_first():
    talk = conversation(lane_order="srtf")
    for number, ran_ms in ((1, 500), (2, 5)):
        talk.attach(number, name=f"n{number}")
        run(talk, number, 1, exclusive_ns=ran_ms * MS)
        talk.leave(number)
    come(talk, 3, 1000, 1)
    come(talk, 4, 900, 1, name="n1")
    come(talk, 5, 900, 1, name="n2")

    talk.leave(3)
    talk.sample(4, after_ms=1)
    talk.sample(5, after_ms=1)

    assert (group(talk, 4).barred, group(talk, 5).barred) == (True, False)


def promise(persistent, ephemeral):
    return {"persistent_bytes": persistent * MIB, "ephemeral_bytes": ephemeral * MIB}


def test_a_larger_promise_counts_at_once(talk):
    come(talk, 1, 100, 300)
    run(talk, 1, 400)

    talk.update(1, **promise(200, 400))

    assert group(talk, 1).memory_limit_bytes == 600 * MIB
    come(talk, 2, 400, 100)  # beside 100 + 300 it fitted in a lane of its own
    assert talk.core.lanes.of(group(talk, 2)).lanes.lanes == [{(1000, "j:1"), (1000, "j:2")}]


def test_in_a_lane_with_others_a_larger_promise_counts_at_once_as_well(talk):
    come(talk, 1, 100, 300)
    run(talk, 1, 400)
    come(talk, 2, 400, 300)  # a lane of its own would need 700: joins the lane of the first
    assert talk.core.lanes.of(group(talk, 2)).lanes.lanes == [{(1000, "j:1"), (1000, "j:2")}]

    talk.update(1, **promise(200, 300))

    assert group(talk, 1).memory_limit_bytes == 500 * MIB


def test_one_that_holds_too_much_is_taken_at_its_word_though_there_is_no_room(talk):
    come(talk, 1, 100, 300)
    come(talk, 2, 300, 300)  # 24 MiB are left
    run(talk, 1, 450)

    talk.update(1, **promise(200, 300))

    assert talk.core.lanes.of(group(talk, 1)).promise.peak_bytes == 500 * MIB


def test_a_promise_for_which_there_is_no_room_is_refused(talk):
    come(talk, 1, 100, 300)
    come(talk, 2, 100, 300)
    job = talk.core.jobs[1]
    spec = replace(job.spec, **promise(400, 300))

    assert "no room beside the jobs on its gpu" in talk.core.objection_to(spec, job)
    assert talk.core.objection_to(replace(job.spec, **promise(200, 300)), job) is None


@pytest.mark.parametrize("held", [600, 250])
def test_a_smaller_promise_counts_from_the_end_of_the_iteration_on(talk, held):
    come(talk, 1, 100, 500)
    run(talk, 1, held)
    come(talk, 2, 400, 100)  # 100 + 400 + 500 of 1024: joins the lane of the first
    come(talk, 3, 100, 100)
    assert not talk.core.lanes.of(group(talk, 3)).lanes.is_admitted((1000, "j:3"))

    talk.update(1, **promise(100, 200))
    assert group(talk, 1).memory_limit_bytes == 600 * MIB
    stop(talk, 1, 100)

    assert group(talk, 1).memory_limit_bytes == 300 * MIB
    assert talk.core.lanes.of(group(talk, 3)).lanes.is_admitted((1000, "j:3"))


def test_one_of_unknown_need_waits_while_others_may_keep_all_memory(talk):
    come(talk, 1)
    come(talk, 2)

    told = summary(talk, 2)

    assert told.startswith("1st in line to come onto the gpu: what it needs is not known, and no")
    assert told.endswith("because others may keep all of it")


def test_another_promise_of_one_in_line_lets_it_in(talk):
    come(talk, 1, 100, 800)
    come(talk, 2, 500, 100)
    assert "in line to come onto the gpu" in summary(talk, 2)

    talk.update(2, **promise(100, 100))

    assert not [a for a in closed(talk.actions) if a == 2]
    assert talk.core.lanes.of(group(talk, 2)).lanes.is_admitted((1000, "j:2"))


def test_one_in_line_may_promise_more(talk):
    come(talk, 1, 100, 800)
    come(talk, 2, 500, 100)

    talk.update(2, **promise(500, 200))

    assert "with 500 MiB for good and 200 MiB an iteration" in summary(talk, 2)


def test_in_a_lane_of_its_own_a_smaller_promise_counts_once_it_holds_no_more(talk):
    come(talk, 1, 100, 500)
    run(talk, 1, 400)

    talk.update(1, **promise(100, 200))
    assert group(talk, 1).memory_limit_bytes == 600 * MIB
    run(talk, 1, 250)

    assert group(talk, 1).memory_limit_bytes == 300 * MIB


def come_as_ranks(talk):
    """Jobs 1 and 2 share a lane; processes 1 and 11 of job 1 both hold memory."""
    come(talk, 1, 100, 500)
    talk.attach(11, job_id=1)
    for rank in (1, 11):
        run(talk, rank, 50)
    come(talk, 2, 100, 600)


def mark(talk, number):
    """The process marks another iteration, and stops there if told to; returns whether it did."""
    steps = talk.usages[number].steps + 1
    limit = talk.core.lanes.of(group(talk, 1)).steps.get(number, 0)
    stopped = steps if 0 < limit <= steps else talk.usages[number].stopped
    talk.sample(number, after_ms=1, steps=steps, stopped=stopped, busy=False)
    return stopped == steps


def test_who_never_marks_does_not_stop_its_siblings_for_good(talk):
    come_as_ranks(talk)
    assert mark(talk, 1)
    talk.tick(after_ms=250)  # an evaluator may merely be late
    assert mark(talk, 1)

    assert talk.core.lanes.of(group(talk, 1)).steps == {}
    assert not mark(talk, 1)
    assert not group(talk, 1).barred


def test_a_process_without_memory_keeps_nobody_from_ending(talk):
    come(talk, 1, 100, 500)
    talk.attach(11, job_id=1)
    run(talk, 1, 50)
    come(talk, 2, 100, 600)

    assert mark(talk, 1)

    talk.tick(after_ms=1)
    assert group(talk, 1).barred
    assert not group(talk, 2).barred


def test_ranks_whose_limits_are_a_step_apart_end_together(talk):
    come(talk, 1, 100, 500)
    talk.attach(11, job_id=1)
    run(talk, 1, 50, steps=10)
    run(talk, 11, 50, steps=9)  # seen before its tenth mark
    come(talk, 2, 100, 600)
    assert talk.core.lanes.of(group(talk, 1)).steps == {1: 11, 11: 10}
    assert mark(talk, 11)  # while 1, in its eleventh, waits for it on the host

    talk.tick(after_ms=249)
    assert talk.core.lanes.of(group(talk, 1)).steps == {1: 11, 11: 10}
    talk.tick(after_ms=1)
    assert talk.core.lanes.of(group(talk, 1)).steps == {1: 11, 11: 11}

    assert mark(talk, 11)
    assert mark(talk, 1)
    talk.tick(after_ms=1)
    assert not group(talk, 2).barred


def test_ranks_that_stop_together_do_one_iteration_a_turn(talk):
    come_as_ranks(talk)

    assert mark(talk, 1)
    talk.tick(after_ms=249)
    assert group(talk, 2).barred
    assert mark(talk, 11)
    talk.tick(after_ms=1)

    assert group(talk, 1).barred
    assert not group(talk, 2).barred


def test_work_that_waits_for_what_comes_behind_the_mark_is_let_on(talk):
    come(talk, 1, 100, 500)
    run(talk, 1, 600)
    come(talk, 2, 100, 600)
    talk.sample(1, after_ms=1, steps=1, stopped=1, busy=True, device_bytes=600 * MIB)
    assert group(talk, 1).barred

    talk.tick(after_ms=249)
    assert group(talk, 1).barred
    talk.tick(after_ms=1)

    assert not group(talk, 1).barred
    assert group(talk, 2).barred  # the lane still belongs to the first
    assert talk.is_open(1)
    stop(talk, 1, 100)  # it reaches its next mark
    assert not group(talk, 2).barred


def test_more_than_the_gpu_has_does_not_stop_the_line(talk):
    come(talk, 1, 100, 800)
    come(talk, 2, 1000, 500)
    come(talk, 3, 100, 100)
    lanes = talk.core.lanes.of(group(talk, 2)).lanes

    talk.leave(1)

    assert lanes.is_admitted((1000, "j:2"))  # runs alone, like a job that promises nothing
    assert lanes.need_of((1000, "j:2")) is None


def test_who_joins_a_group_adds_its_promise_only_where_there_is_room(talk):
    come(talk, 1, 100, 300, group="ranks")
    come(talk, 2, 100, 300)
    lanes = talk.core.lanes.of(group(talk, 1)).lanes

    come(talk, 3, 200, 300, group="ranks")  # 300 + 600 + 100 + 300 exceed what there is

    assert lanes.alone == []
    assert not group(talk, 2).barred
    assert group(talk, 1).memory_limit_bytes == 400 * MIB
    talk.leave(2)
    assert group(talk, 1).memory_limit_bytes == 900 * MIB


def test_a_promise_of_one_of_several_in_a_group_counts_with_the_others(talk):
    come(talk, 1, 100, 100, group="ranks")
    come(talk, 2, 100, 100, group="ranks")
    come(talk, 3, 100, 300)  # 224 MiB are left
    job = talk.core.jobs[1]

    refused = replace(job.spec, **promise(200, 300))  # 100 and 200 more than before
    assert "no room beside the jobs on its gpu" in talk.core.objection_to(refused, job)
    assert talk.core.objection_to(replace(job.spec, **promise(200, 200)), job) is None


def line_before(talk, persistent, ephemeral, uid=1000, gpus=(), **spec):
    return talk.core.line_before(JobSpec(**promise(persistent, ephemeral), **spec), uid, gpus)


def test_who_is_not_to_wait_hears_before_it_starts_that_it_would(talk):
    assert line_before(talk, 600, 1) is None
    come(talk, 1, 100, 500)

    assert line_before(talk, 400, 500) is None, "in the lane of the first"
    assert line_before(talk, 600, 1) == (
        "it would stand in line: no gpu has room for 600 MiB for good and 1 MiB besides now"
    )
    come(talk, 2, 600, 1)
    assert line_before(talk, 1, 1) is not None, "nobody goes before the first in line"


def test_another_gpu_with_room_will_do(talk):
    come(talk, 1, 100, 500)
    assert line_before(talk, 600, 1) is not None

    talk.core.memory.line.capacity_bytes[1] = TOTAL

    assert line_before(talk, 600, 1) is None
    assert line_before(talk, 600, 1, gpus={1}) is None
    assert line_before(talk, 600, 1, gpus={0}) is not None, "it is bound to the other"


def test_a_gpu_that_has_less_memory_than_it_had_has_room_for_less(talk):
    come(talk, 1, 100, 300)
    assert line_before(talk, 300, 200) is None

    talk.core.memory.line.capacity_bytes[0] = TOTAL // 2
    talk.tick()

    assert line_before(talk, 300, 200) is not None


def test_who_joins_a_group_needs_room_where_that_is(talk):
    talk.attach(1, group="ranks", **promise(100, 500))
    assert line_before(talk, 100, 100, group="ranks") is None
    assert "where its group is" in line_before(talk, 900, 1, group="ranks")
    assert line_before(talk, 900, 1, group="ranks", uid=1) is not None, "another's group"

    talk.attach(2, group="others", **promise(600, 1))
    assert "in line with j-2" in line_before(talk, 1, 1, group="others")


def test_under_other_policies_nobody_stands_in_line():
    talk = Talk(Options(policy="fair"))
    talk.core.memory.line.capacity_bytes = {0: TOTAL}
    talk.attach(1, **promise(100, 900))

    assert line_before(talk, 900, 1) is None
