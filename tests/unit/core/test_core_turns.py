import pytest
from talk import BATCH, LATENCY, MS, NORMAL, Talk, run

from tandemd.core.events import CloseGates, OpenGates
from tandemd.core.explain.explain import explain
from tandemd.core.model import Options, WaitReason


def two_at_work(policy="fair", **options):
    """Two batch processes; the first has the turn and the second waits at its gate."""
    talk = Talk(Options(policy=policy, **options))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.works(1)
    talk.waits(2)
    return talk


def test_a_lone_process_is_never_held():
    talk = Talk()

    talk.attach(1, BATCH)
    talk.works(1, ran_ms=500, after_ms=500)

    assert talk.gates == []
    assert talk.is_open(1)


def test_all_gates_are_open_while_nobody_has_work():
    talk = Talk()

    talk.attach(1, BATCH)
    talk.attach(2, BATCH)

    assert talk.open_processes() == {1, 2}


def test_the_first_with_work_takes_the_turn_and_the_others_are_held():
    talk = Talk()
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)

    talk.works(2)

    assert talk.gates == [CloseGates(process_ids=(1,))]


def test_a_turn_passes_after_a_quantum_of_gpu_time():
    talk = two_at_work()

    talk.works(1, after_ms=10, ran_ms=10)

    assert talk.gates == [CloseGates(process_ids=(1,))]


def test_time_on_the_clock_without_gpu_time_does_not_end_a_turn():
    talk = two_at_work()

    talk.works(1, after_ms=100, ran_ms=9)

    assert talk.gates == []


def test_the_next_gate_opens_only_when_the_last_work_is_done():
    talk = two_at_work()
    talk.works(1, after_ms=10, ran_ms=10)

    talk.works(1, after_ms=1)
    assert talk.gates == []
    talk.waits(1, after_ms=1)

    assert talk.gates == [OpenGates(process_ids=(2,))]


@pytest.mark.parametrize("policy", ["fifo", "fair", "priority"])
def test_a_holder_that_only_waits_at_its_open_gate_loses_its_claim(policy):
    talk = two_at_work(policy)
    talk.waits(1, after_ms=1)
    assert talk.open_processes() == {1}

    talk.tick(after_ms=1000)

    assert talk.open_processes() == {1, 2}  # its open gate is unused and keeps nobody out
    talk.works(2, after_ms=1)
    talk.tick(after_ms=5000)
    assert talk.open_processes() == {1, 2}


def test_a_claim_comes_back_with_work_on_the_gpu():
    talk = two_at_work()
    talk.waits(1, after_ms=1)
    talk.tick(after_ms=1000)
    talk.works(2, after_ms=1)

    talk.works(1, after_ms=1)

    assert talk.open_processes() == {2}


def test_the_scheduler_comes_round_when_a_turn_goes_unused():
    talk = two_at_work("fifo", min_share=0.0)

    talk.waits(1, after_ms=1)

    assert talk.wake_at_ms == 1000


def test_a_holder_without_work_gives_up_its_turn_after_a_grace():
    talk = two_at_work()

    talk.rests(1, after_ms=0.5)
    assert talk.gates == []
    talk.tick(after_ms=1)

    assert talk.gates == [CloseGates(process_ids=(1,)), OpenGates(process_ids=(2,))]


def test_the_scheduler_asks_to_be_woken_when_the_grace_ends():
    talk = two_at_work()

    talk.rests(1, after_ms=0.5)

    assert talk.wake_at_ms == pytest.approx(1)


def test_everything_opens_once_nobody_has_work():
    talk = two_at_work()
    talk.rests(1, 2)

    talk.tick(after_ms=2)

    assert talk.open_processes() == {1, 2}


def test_a_holder_that_dies_passes_its_turn_on_at_once():
    talk = two_at_work()

    talk.leave(1)

    assert OpenGates(process_ids=(2,)) in talk.gates


def test_a_group_is_held_and_released_as_one():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, group="ranks")
    talk.attach(2, BATCH, group="ranks")
    talk.attach(3, BATCH)
    talk.works(1)
    talk.waits(3)

    talk.works(1, after_ms=10, ran_ms=10)

    assert talk.gates == [CloseGates(process_ids=(1, 2))]


def test_a_group_waits_for_the_work_of_all_its_processes():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, group="ranks")
    talk.attach(2, BATCH, group="ranks")
    talk.attach(3, BATCH)
    talk.works(1, 2)
    talk.waits(3)
    talk.works(1, after_ms=10, ran_ms=10)

    talk.rests(1, after_ms=1)
    assert talk.gates == []
    talk.rests(2)

    assert talk.gates == [OpenGates(process_ids=(3,))]


def test_groups_of_the_same_name_but_other_uids_are_apart():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, group="ranks", uid=1000)
    talk.attach(2, BATCH, group="ranks", uid=1001)

    talk.works(1)

    assert talk.gates == [CloseGates(process_ids=(2,))]


def test_processes_on_different_gpus_never_wait_for_each_other():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, gpu=0)
    talk.attach(2, BATCH, gpu=1)

    talk.works(1, 2)

    assert talk.open_processes() == {1, 2}


def test_a_group_on_two_gpus_takes_its_turn_on_both_at_once():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, gpu=0, group="ranks")
    talk.attach(2, BATCH, gpu=1, group="ranks")
    talk.attach(3, BATCH, gpu=0)
    talk.attach(4, BATCH, gpu=1)

    talk.works(1)

    assert talk.open_processes() == {1, 2}


def test_work_that_does_not_drain_reopens_the_gate():
    talk = two_at_work()
    talk.works(1, after_ms=10, ran_ms=10)

    talk.works(1, after_ms=251)

    assert talk.gates == [OpenGates(process_ids=(1,))]


def test_a_reopened_group_is_tried_again_after_its_next_step():
    talk = two_at_work()
    talk.works(1, after_ms=10, ran_ms=10)
    talk.works(1, after_ms=251)

    talk.sample(1, steps=1, after_ms=5)

    assert talk.gates == [CloseGates(process_ids=(1,))]


def test_an_iteration_that_was_found_serves_where_a_job_marks_none():
    for find, closed in ((True, [CloseGates(process_ids=(1,))]), (False, [])):
        talk = two_at_work(find_iterations=find)
        talk.works(1, after_ms=10, ran_ms=10)
        talk.works(1, after_ms=251)

        talk.sample(1, iterations=1, after_ms=5)

        assert talk.gates == closed


def test_a_jobs_own_marks_win_over_iterations_that_were_found():
    talk = two_at_work()
    talk.sample(1, steps=1)
    talk.works(1, after_ms=10, ran_ms=10)
    talk.works(1, after_ms=251)

    talk.sample(1, iterations=1, after_ms=5)

    assert talk.gates == []


def test_after_three_failed_drains_a_group_takes_no_more_turns():
    talk = two_at_work()
    talk.works(1, after_ms=10, ran_ms=10)
    for _ in range(3):
        talk.works(1, after_ms=251)
        talk.works(1, after_ms=1001)

    assert talk.core.groups[1000, "j:1"].undrainable
    assert talk.open_processes() == {1, 2}
    assert any("undrainable" in line for _, line in talk.core.jobs[1].story)


def closed_on_a_queue(pieces):
    """The first submitted `pieces` pieces of work before its turn ended."""
    talk = two_at_work()
    talk.sample(1, launches=pieces, open_segments=pieces)
    talk.works(1, after_ms=10, ran_ms=10)
    assert talk.open_processes() == set()
    return talk


def test_a_queue_of_which_some_ends_is_waited_for():
    talk = closed_on_a_queue(pieces=20)

    for left in range(19, 0, -1):
        talk.sample(1, open_segments=left, after_ms=249)
        assert talk.open_processes() == set()
    talk.waits(1, after_ms=249)

    assert talk.open_processes() == {2}


def test_a_queue_of_which_nothing_ends_any_more_reopens_the_gate():
    talk = closed_on_a_queue(pieces=20)
    talk.sample(1, open_segments=19, after_ms=249)

    talk.tick(after_ms=2 * 249 - 1)
    assert talk.open_processes() == set()
    talk.tick(after_ms=1)

    assert talk.open_processes() == {1}


def test_pieces_that_take_longer_than_a_drain_may_are_no_failures():
    talk = closed_on_a_queue(pieces=20)

    for left in range(19, 0, -1):
        for _ in range(7):
            talk.tick(after_ms=100)
        talk.sample(1, open_segments=left)
    talk.waits(1, after_ms=700)

    assert not talk.core.groups[1000, "j:1"].undrainable
    assert talk.open_processes() == {2}


def test_pieces_that_are_known_to_take_long_are_waited_for_without_another_try():
    talk = closed_on_a_queue(pieces=3)
    talk.tick(after_ms=251)
    talk.sample(1, open_segments=2, after_ms=449)  # 700 ms in total
    talk.tick(after_ms=1001)
    assert talk.open_processes() == set()

    talk.sample(1, open_segments=1, after_ms=300)
    talk.tick(after_ms=599)
    assert talk.open_processes() == set()
    talk.tick(after_ms=1)

    assert talk.open_processes() == {1}


def test_what_ends_once_the_job_could_go_on_proves_nothing():
    talk = closed_on_a_queue(pieces=20)

    for more in range(1, 4):
        talk.tick(after_ms=251)
        talk.sample(1, launches=20 + more, open_segments=20 - more)
        talk.tick(after_ms=1001)

    assert talk.core.groups[1000, "j:1"].undrainable


def test_a_queue_is_waited_for_no_longer_than_max_hold():
    talk = closed_on_a_queue(pieces=200)

    for left in range(199, 60, -1):
        talk.sample(1, open_segments=left, after_ms=200)

    assert talk.core.groups[1000, "j:1"].undrainable
    assert talk.open_processes() == {1, 2}


def test_how_long_a_queue_was_waited_for_is_forgotten_once_nobody_waits():
    talk = closed_on_a_queue(pieces=20)
    talk.rests(2)  # the waiting job goes elsewhere,
    for _ in range(30):  # and comes back after more than max_hold
        talk.works(1, after_ms=1000, ran_ms=1000)
    assert talk.open_processes() == {1}
    talk.sample(1, launches=60, open_segments=40)
    talk.waits(2)
    talk.works(1, after_ms=10, ran_ms=10)
    assert talk.open_processes() == set()

    for left in range(39, 19, -1):
        talk.sample(1, open_segments=left, after_ms=249)
        assert talk.open_processes() == set()


def test_a_successful_drain_forgives_earlier_failures():
    talk = two_at_work()
    talk.works(1, after_ms=10, ran_ms=10)
    talk.works(1, after_ms=251)
    talk.sample(1, steps=1)

    talk.waits(1, after_ms=1)

    assert talk.core.groups[1000, "j:1"].drain_failures == 0


def test_no_hold_is_longer_than_max_hold_in_any_policy():
    talk = two_at_work("fifo")

    talk.works(1, after_ms=19_999, ran_ms=19_999)
    assert talk.gates == []
    talk.works(1, after_ms=1, ran_ms=1)

    assert talk.gates == [CloseGates(process_ids=(1,))]


def test_a_breath_is_a_quantum_and_then_the_policy_rules_again():
    talk = two_at_work("fifo")
    talk.works(1, after_ms=20_000, ran_ms=20_000)
    talk.waits(1, after_ms=1)
    talk.works(2, after_ms=9, ran_ms=9)
    assert talk.is_open(2)

    talk.works(2, after_ms=1, ran_ms=1)
    talk.waits(2, after_ms=1)

    assert talk.open_processes() == {1}


def test_a_paused_job_is_held_for_as_long_as_it_stays_paused():
    talk = Talk()
    talk.attach(1, LATENCY)
    talk.pause(1)

    talk.waits(1, after_ms=60_000)
    talk.tick(after_ms=60_000)

    assert not talk.is_open(1)


def test_pausing_one_job_of_a_group_holds_all_of_it():
    talk = Talk()
    talk.attach(1, NORMAL, group="ranks")
    talk.attach(2, NORMAL, group="ranks")

    talk.pause(2)

    assert talk.gates == [CloseGates(process_ids=(1, 2))]


def test_resuming_opens_the_gate_again():
    talk = Talk()
    talk.attach(1)
    talk.pause(1)

    talk.resume(1)

    assert talk.gates == [OpenGates(process_ids=(1,))]


def test_who_was_paused_with_work_does_not_make_up_for_it_when_it_goes_on():
    talk = two_at_work()
    talk.pause(1)
    run(talk, (1, 2), 2000)

    talk.resume(1)
    got = run(talk, (1, 2), 1000)

    assert got[2] > 400


@pytest.mark.parametrize("first", [NORMAL, BATCH])
def test_a_class_that_is_changed_is_a_new_beginning_among_those_of_it(first):
    """Until now the job of class normal got nearly all of the time."""
    talk = Talk(Options(policy="priority"))
    talk.attach(1, first)
    talk.attach(2, BATCH if first is NORMAL else NORMAL)
    run(talk, (1, 2), 4000)

    talk.update(1 if first is NORMAL else 2, job_class=BATCH)
    got = run(talk, (1, 2), 1000)

    assert min(got.values()) > 400


def test_a_paused_job_that_does_not_drain_keeps_others_waiting_no_longer_than_the_drain_time():
    talk = two_at_work()
    talk.pause(1)
    talk.works(1, after_ms=100)
    assert not talk.is_open(2)

    talk.works(1, after_ms=151)

    assert talk.is_open(2)


def test_a_process_that_joins_a_held_group_is_held():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH, group="ranks")
    talk.attach(2, BATCH)
    talk.works(2)

    talk.attach(3, BATCH, group="ranks")

    assert talk.of(CloseGates, 3)


def test_waiting_for_memory_is_no_claim_on_the_gpu():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)

    talk.waits(1, reason=WaitReason.MEMORY)

    assert talk.open_processes() == {1, 2}


def ends(talk, *, ran_ms):
    """GPU time and the end of an iteration, both seen in one look."""
    done_ns = talk.usages[1].exclusive_ns + int(ran_ms * MS)
    talk.sample(1, after_ms=ran_ms, busy=True, exclusive_ns=done_ns, steps=talk.usages[1].steps + 1)


def at_work_with_iterations(**options):
    """The first has the turn, its iterations take 4 ms, and it has used 4 of its 10 ms."""
    talk = Talk(Options(policy="fair", quantum_ns=10 * MS, **options))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    talk.works(1)
    for _ in range(2):
        ends(talk, ran_ms=4)
    talk.rests(1)
    talk.tick(after_ms=2)
    talk.works(1)
    talk.waits(2)
    ends(talk, ran_ms=4)
    assert talk.gates == []
    return talk


def test_a_turn_ends_early_where_an_iteration_does():
    talk = at_work_with_iterations()

    ends(talk, ran_ms=4)  # 8 of 10 ms: another iteration would end far beyond the quantum

    assert talk.gates == [CloseGates(process_ids=(1,))]


def test_a_turn_goes_on_to_the_end_of_an_iteration_that_is_near():
    talk = at_work_with_iterations()
    talk.works(1, after_ms=3, ran_ms=3)
    ends(talk, ran_ms=0.4)  # at 7.4 ms: too early
    assert talk.gates == []

    talk.works(1, after_ms=2.8, ran_ms=2.8)  # at 10.2 ms; the end is expected at 10.8
    assert talk.gates == []
    ends(talk, ran_ms=0.7)

    assert talk.gates == [CloseGates(process_ids=(1,))]


def test_a_turn_is_never_more_than_a_quarter_longer():
    talk = at_work_with_iterations()
    talk.works(1, after_ms=3, ran_ms=3)
    ends(talk, ran_ms=0.4)

    talk.works(1, after_ms=4.9, ran_ms=4.9)  # at 12.3 ms, and the iteration is late

    assert talk.gates == [CloseGates(process_ids=(1,))]


@pytest.mark.parametrize(("finds", "is_early"), [(True, True), (False, False)])
def test_iterations_that_were_found_count_only_if_they_may(finds, is_early):
    talk = Talk(Options(policy="fair", quantum_ns=10 * MS, find_iterations=finds))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH)
    for ended in range(3):
        done_ns = talk.usages[1].exclusive_ns + 4 * MS
        talk.sample(1, after_ms=4, busy=True, exclusive_ns=done_ns, iterations=ended + 1)
    talk.rests(1)
    talk.tick(after_ms=2)
    talk.works(1)
    talk.waits(2)

    done_ns = talk.usages[1].exclusive_ns + 8 * MS
    talk.sample(1, after_ms=8, busy=True, exclusive_ns=done_ns, iterations=4)

    assert (talk.gates == [CloseGates(process_ids=(1,))]) is is_early


def test_explain_tells_that_turns_end_with_iterations():
    talk = at_work_with_iterations()

    lines = explain(talk.core, talk.core.job(1), talk.now_ns).lines

    assert (
        "its turns of 10 ms end where an iteration ends, if one does about then; an iteration "
        "takes 4.0 ms of gpu time" in lines
    )


def test_iterations_that_ended_between_two_looks_cost_a_part_of_the_time_each():
    talk = at_work_with_iterations()
    usage = talk.usages[1]

    done_ns = usage.exclusive_ns + 3 * MS
    talk.sample(1, after_ms=3, busy=True, exclusive_ns=done_ns, steps=usage.steps + 3)

    lines = explain(talk.core, talk.core.job(1), talk.now_ns).lines
    assert (
        "its turns of 10 ms end where an iteration ends, if one does about then; an iteration "
        "takes 1.0 ms of gpu time" in lines
    )


def waits_of(talk, job_id):
    """Return how many waits at its gate have ended, and their sum in milliseconds."""
    counted = talk.core.jobs[job_id].gate_waits.counted()
    return counted.count, counted.sum_ns / MS


def test_each_wait_for_a_turn_is_counted_when_the_gate_opens():
    talk = two_at_work()
    talk.works(1, after_ms=10, ran_ms=10)
    assert waits_of(talk, 2) == (0, 0)  # its wait goes on

    talk.waits(1, after_ms=1)
    assert (waits_of(talk, 1), waits_of(talk, 2)) == ((0, 0), (1, 11))

    talk.works(2, after_ms=10, ran_ms=10)
    talk.waits(2, after_ms=1)
    assert (waits_of(talk, 1), waits_of(talk, 2)) == ((1, 12), (1, 11))


def test_a_wait_that_somebody_gives_up_or_a_person_ends_is_one_too():
    talk = two_at_work()

    talk.rests(2, after_ms=5)
    talk.tick(after_ms=5)
    assert waits_of(talk, 2) == (1, 5)
    talk.waits(2)
    talk.tick(after_ms=3)
    talk.pause(2)
    talk.tick(after_ms=7)

    assert waits_of(talk, 2) == (2, 8)  # time spent paused is not counted as waiting


def test_waits_that_were_counted_stay_when_the_process_goes_and_rules_change():
    talk = Talk(Options(policy="fair"))
    talk.register(2)
    talk.attach(1, BATCH)
    talk.attach(2, BATCH, job_id=2)
    talk.attach(3, BATCH, job_id=2)
    talk.works(1)
    talk.waits(2)

    talk.leave(1)
    assert waits_of(talk, 2) == (1, 0)
    talk.leave(2)
    talk.policy("fifo")

    assert waits_of(talk, 2) == (1, 0)


def test_all_jobs_of_a_group_wait_when_it_does():
    talk = Talk(Options(policy="fair"))
    talk.attach(1, BATCH)
    talk.attach(2, BATCH, group="ranks")
    talk.attach(3, BATCH, group="ranks")
    talk.works(1)
    talk.waits(2)

    talk.rests(1, after_ms=4)
    talk.tick(after_ms=2)

    assert waits_of(talk, 2) == waits_of(talk, 3) == (1, 6)


def test_turns_are_counted_of_who_waited_for_them():
    talk = Talk(Options(policy="fair"))
    talk.attach(1)
    talk.attach(2)
    talk.works(1)
    talk.waits(2)

    talk.rests(1)
    talk.works(2, after_ms=1)

    assert [talk.core.group_of(talk.core.job(n)).turns for n in (1, 2)] == [0, 1]


def test_of_who_is_paused_while_it_waits_no_turn_is_told():
    talk = Talk(Options(policy="fair"))
    talk.attach(1)
    talk.attach(2)
    talk.works(1)
    talk.waits(2)

    talk.pause(2)

    told = [line for _, line in talk.core.job(2).story]
    assert "held: j-1 has the gpu" in told
    assert "its gate opened" not in told
