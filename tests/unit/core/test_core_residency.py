"""Which memory moves when a job is paused and resumed, and what people are told."""

import pytest
from talk import MS, Talk

from tandemd.core.events import CloseGates, MoveMemory, OpenGates
from tandemd.core.explain.explain import explain
from tandemd.core.memory.rooms import PATIENCE_NS, Rooms
from tandemd.core.model import NO_LIMIT, JobState, Options, SwapOutcome, WaitReason

MIB = 1 << 20


def moves(actions):
    return [action for action in actions if isinstance(action, MoveMemory)]


def started(talk, process_id, bytes_, *, swappable=True):
    talk.register(process_id, swappable=swappable)
    talk.attach(process_id, swappable=swappable)
    talk.map(process_id)
    talk.works(process_id)
    talk.sample(process_id, swappable_bytes=bytes_, device_bytes=bytes_)


def ended(talk, process_id, order, outcome=SwapOutcome.REACHED, swapped=0):
    return talk.sample(process_id, swap_done=order, swap_outcome=outcome, swapped_bytes=swapped)


def summary(talk, job_id):
    return explain(talk.core, talk.core.job(job_id), talk.now_ns).summary


def story(talk, job_id):
    return [line for _, line in talk.core.job(job_id).story]


def test_how_much_of_a_job_cannot_be_moved_is_said():
    talk = Talk()
    started(talk, 1, 100 * MIB)
    started(talk, 2, 100 * MIB, swappable=False)
    facts = [explain(talk.core, talk.core.job(job), talk.now_ns).lines for job in (1, 2)]
    assert not any("cannot be moved" in line for lines in facts for line in lines)

    for job in (1, 2):
        talk.sample(job, swappable_bytes=70 * MIB, device_bytes=100 * MIB)
    shared, driver = (explain(talk.core, talk.core.job(job), talk.now_ns).lines for job in (1, 2))
    what = (
        "30 MiB of its memory cannot be moved: it is in pools or arrays, or shared with other "
        "processes"
    )
    assert what in shared
    assert what not in driver


def test_memory_goes_when_a_paused_job_has_nothing_on_the_gpu_and_comes_back_when_it_goes_on():
    talk = Talk()
    started(talk, 1, 100 * MIB)

    paused = talk.pause(1)
    assert any(isinstance(action, CloseGates) for action in paused)
    assert not moves(paused)  # its work is still on the GPU
    (out,) = moves(talk.rests(1))
    assert (out.target_bytes, out.pool_bytes, out.order) == (0, 100 * MIB, 1)
    assert not moves(talk.tick(after_ms=10))  # told only once

    assert talk.core.job(1).state is JobState.PAUSED
    ended(talk, 1, 1, swapped=100 * MIB)
    assert talk.core.job(1).state is JobState.SWAPPED
    assert "100 MiB of its memory is on the host" in story(talk, 1)
    assert summary(talk, 1) == (
        "paused by a person, its memory is on the host: 100 MiB; `tandem resume j-1` lets it go on"
    )

    resumed = talk.resume(1)
    (back,) = moves(resumed)
    assert (back.target_bytes, back.pool_bytes, back.order) == (NO_LIMIT, 0, 2)
    assert any(isinstance(action, OpenGates) for action in resumed)
    assert talk.core.job(1).state is JobState.WAITING
    ended(talk, 1, 2)
    assert story(talk, 1)[-1] == "its memory is back on the gpu"
    # It keeps its host memory, so another pause needs no more.
    (again,) = moves(talk.pause(1))  # at once, since none of its work is on the GPU now
    assert (again.order, again.target_bytes, again.pool_bytes) == (3, 0, 0)


def test_the_host_gives_no_more_than_the_gpu_can_have():
    talk = Talk()
    talk.core.memory.line.capacity_bytes = {0: 100 * MIB}
    started(talk, 1, 300 * MIB)

    talk.pause(1)
    (out,) = moves(talk.rests(1))

    assert out.pool_bytes == 100 * MIB


def test_the_host_gives_nothing_for_what_the_driver_denies():
    talk = Talk()
    started(talk, 1, 4096 * MIB)
    for _ in range(2):
        talk.audit(p1=(1024 * MIB,))

    talk.pause(1)
    (out,) = moves(talk.rests(1))

    assert out.pool_bytes == 1024 * MIB


def test_managed_memory_that_is_not_there_takes_no_room_from_what_can_be_moved():
    talk = Talk()
    started(talk, 1, 4096 * MIB)
    talk.sample(1, swappable_bytes=4096 * MIB, device_bytes=12288 * MIB)
    for _ in range(2):
        talk.audit(p1=(4500 * MIB,))

    talk.pause(1)
    (out,) = moves(talk.rests(1))

    assert out.pool_bytes == 4096 * MIB


def test_a_job_that_may_not_be_moved_is_only_held():
    talk = Talk()
    started(talk, 1, 100 * MIB, swappable=False)
    talk.pause(1)

    assert not moves(talk.rests(1))
    assert not moves(talk.tick(after_ms=1000))
    assert not moves(talk.resume(1))


def test_what_the_host_has_is_shared_out_before_anything_moves():
    talk = Talk(options=Options(host_limit_bytes=150 * MIB))
    started(talk, 1, 100 * MIB)
    started(talk, 2, 100 * MIB)
    talk.rests(1, 2)
    assert [move.process_id for move in moves(talk.pause(1))] == [1]

    assert not moves(talk.pause(2))
    (line,) = [line for line in story(talk, 2) if "stays" in line]
    assert "it needs 100 MiB of the host" in line
    assert "50 MiB are left of the 150 MiB" in line
    assert line in summary(talk, 2)

    # When the first job leaves, its host memory becomes available to others.
    assert [move.process_id for move in moves(talk.leave(1))] == [2]
    ended(talk, 2, 1, swapped=100 * MIB)
    assert "stays" not in summary(talk, 2)


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (SwapOutcome.NO_HOST_ROOM, "is too small"),
        (SwapOutcome.NOT_DRAINED, "does not end"),
        (SwapOutcome.FAILED, "a copy failed"),
    ],
)
def test_what_went_wrong_is_told(outcome, why):
    talk = Talk()
    started(talk, 1, 8 * MIB)
    talk.pause(1)
    talk.rests(1)
    ended(talk, 1, 1, outcome)

    assert talk.core.job(1).state is JobState.PAUSED
    assert story(talk, 1)[-1].endswith(why)
    assert f"its memory stays on the gpu: {story(talk, 1)[-1].split(': ')[1]}" in summary(talk, 1)
    talk.resume(1)
    assert "stays" not in summary(talk, 1)


def test_memory_that_could_not_be_moved_is_tried_again_in_time():
    talk = Talk()
    started(talk, 1, 8 * MIB)
    talk.pause(1)
    talk.rests(1)
    ended(talk, 1, 1, SwapOutcome.FAILED)
    assert talk.wake_at_ms == 1000
    assert not moves(talk.tick(after_ms=999))
    assert [move.order for move in moves(talk.tick(after_ms=1))] == [2]


def test_an_order_that_was_replaced_is_not_reported():
    talk = Talk()
    started(talk, 1, 8 * MIB)
    talk.pause(1)
    talk.rests(1)
    talk.resume(1)
    before = story(talk, 1)
    ended(talk, 1, 1, SwapOutcome.NOT_DRAINED)
    assert story(talk, 1) == before


def test_a_group_of_two_moves_only_when_both_are_still():
    talk = Talk()
    for job in (1, 2):
        talk.register(job, swappable=True, group="g")
        talk.attach(job, swappable=True, group="g")
        talk.map(job)
        talk.works(job)
        talk.sample(job, swappable_bytes=8 * MIB, device_bytes=8 * MIB)
    talk.pause(1)
    assert not moves(talk.rests(1))
    talk.now_ns += MS
    assert {move.process_id for move in moves(talk.rests(2))} == {1, 2}


def test_memory_that_comes_back_by_itself_leaves_the_job_paused():
    talk = Talk()
    started(talk, 1, 8 * MIB)
    talk.pause(1)
    talk.rests(1)
    ended(talk, 1, 1, swapped=8 * MIB)
    talk.sample(1, swapped_bytes=0)
    assert talk.core.job(1).state is JobState.PAUSED


def test_what_was_moved_outlives_the_process():
    talk = Talk()
    for process in (1, 2):
        talk.attach(process, job_id=1, swappable=True)
        talk.sample(process, swap_out_bytes=40 * MIB, swap_in_bytes=10 * MIB, swap_in_ns=7)
    assert talk.core.job(1).moved_bytes == (80 * MIB, 20 * MIB)

    talk.leave(2)
    talk.sample(1, swap_out_bytes=41 * MIB, swap_in_bytes=10 * MIB, swap_in_ns=7)

    assert talk.core.job(1).moved_bytes == (81 * MIB, 20 * MIB)
    assert talk.core.job(1).moved_ns == (0, 14)


def test_what_is_left_of_a_paused_job_on_the_gpu_is_said():
    talk = Talk()
    started(talk, 1, 640 * MIB)
    talk.update(1, memory_min_bytes=592 * MIB, swappable=True)
    talk.pause(1)
    (out,) = moves(talk.rests(1))
    assert out.target_bytes == 592 * MIB
    ended(talk, 1, 1, swapped=48 * MIB)

    assert talk.core.job(1).state is JobState.SWAPPED
    assert ", 48 MiB of its memory on the host and 592 MiB on the gpu; `tandem" in summary(talk, 1)


def test_memory_that_a_gpu_lacks_may_have_been_of_who_left():
    rooms = Rooms()
    for now_ns in (0, PATIENCE_NS):
        rooms.watch(0, waits=True, held_bytes=0, capacity_bytes=1000 * MIB, now_ns=now_ns)
    assert rooms.room_bytes(0, counted_bytes=1000 * MIB, held_bytes=0) < 1000 * MIB

    rooms.forget(0)

    assert rooms.room_bytes(0, counted_bytes=1000 * MIB, held_bytes=0) == 1000 * MIB


def idle(talk, *, release_ms):
    """A job whose work ended at `talk.now_ns`."""
    started(talk, 1, 100 * MIB)
    talk.update(1, swappable=True, idle_release_ns=release_ms * MS)
    talk.rests(1)


def test_a_job_that_gave_its_memory_up_is_idle_and_waits_for_nothing():
    talk = Talk()
    idle(talk, release_ms=60_000)
    assert summary(talk, 1).startswith("idle: attached, no work on the gpu")
    (out,) = moves(talk.tick(after_ms=60_000))
    assert out.target_bytes == 0
    ended(talk, 1, 1, swapped=100 * MIB)
    talk.tick(after_ms=5_000)

    assert summary(talk, 1) == (
        "idle for 65 s: 100 MiB of its memory is on the host, the first of it for 5.0 s; it comes "
        "back at the job's next call"
    )
    talk.waits(1, reason=WaitReason.MEMORY)
    assert summary(talk, 1) == "waits for 100 MiB of its memory to come back to the gpu"


def test_memory_that_comes_back_though_nobody_calls_is_waited_for():
    talk = Talk()
    started(talk, 1, 100 * MIB)
    talk.pause(1)
    talk.rests(1)
    ended(talk, 1, 1, swapped=100 * MIB)
    talk.resume(1)

    assert summary(talk, 1) == "waits for 100 MiB of its memory to come back to the gpu"


@pytest.mark.parametrize("swappable", [True, False])
def test_that_a_job_may_be_moved_is_said_before_anything_moves(swappable):
    talk = Talk()
    started(talk, 1, 100 * MIB, swappable=swappable)

    lines = explain(talk.core, talk.core.job(1), talk.now_ns).lines

    assert any(line.startswith("swappable: its memory may be moved") for line in lines) is swappable
