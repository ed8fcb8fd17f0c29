"""Which paused jobs the driver saves to host memory, and what people are told about it."""

from talk import Talk

from tandemd.core.events import CheckpointProcess, ProcessCheckpointed
from tandemd.core.explain.explain import explain
from tandemd.core.memory.checkpoints import MOST_RETURNS, MOST_SAVES
from tandemd.core.model import JobState

MIB = 1 << 20


def asked(actions):
    return [(a.process_id, a.away) for a in actions if isinstance(a, CheckpointProcess)]


def ended(talk, process_id, *, away, problem=""):
    event = ProcessCheckpointed(
        now_ns=talk.now_ns, process_id=process_id, away=away, problem=problem
    )
    return talk.say(event)


def started(*, checkpoint=True):
    talk = Talk()
    talk.register(1, checkpoint=checkpoint)
    first = talk.attach(1, checkpoint=checkpoint)
    talk.map(1)
    if checkpoint:
        assert asked(first) == [(1, False)]  # a previous daemon may have saved it
        ended(talk, 1, away=False)
    talk.works(1)
    talk.sample(1, device_bytes=100 * MIB)
    for _ in range(2):
        talk.audit(p1=(108 * MIB,))
    assert talk.core.processes[1].unseen_bytes == 8 * MIB  # its context
    return talk


def summary(talk, job_id=1):
    return explain(talk.core, talk.core.job(job_id), talk.now_ns).summary


def story(talk):
    return [line for _, line in talk.core.job(1).story]


def many(count):
    """Idle jobs, each with one process of the same number."""
    talk = Talk()
    for job_id in range(1, count + 1):
        talk.register(job_id, checkpoint=True)
        talk.attach(job_id, checkpoint=True)
        talk.map(job_id)
        ended(talk, job_id, away=False)
        talk.sample(job_id, device_bytes=100 * MIB)
    return talk


def test_a_paused_job_is_saved_once_it_rests_and_brought_back_when_it_goes_on():
    talk = started()

    assert not asked(talk.pause(1))  # its work is still on the gpu
    assert asked(talk.rests(1)) == [(1, True)]
    assert not asked(talk.tick(after_ms=10))  # asked only once

    ended(talk, 1, away=True)
    job = talk.core.job(1)
    usage = job.processes[1].usage
    assert (job.state, usage.resident_bytes) == (JobState.SWAPPED, 0)
    assert job.processes[1].unseen_bytes == 0
    assert not asked(talk.sample(1, after_ms=5000))
    assert talk.core.job(1).processes[1].usage.swapped_bytes == 100 * MIB
    assert "on the host" in explain(talk.core, job, talk.now_ns).summary

    assert asked(talk.resume(1)) == [(1, False)]
    ended(talk, 1, away=False)
    assert talk.core.job(1).processes[1].usage.resident_bytes == 100 * MIB
    assert story(talk)[-1] == "the driver brought it back to the gpu"
    assert asked(talk.pause(1)) == [(1, True)]


def test_a_job_that_did_not_ask_is_only_held():
    talk = started(checkpoint=False)

    talk.pause(1)

    assert not asked(talk.rests(1))
    assert not asked(talk.resume(1))


def test_what_cannot_be_saved_stays_and_is_tried_again_at_the_next_pause():
    talk = started()
    talk.pause(1)
    talk.rests(1)

    problem = "cuCheckpointProcessUnlock answers error 999"
    assert asked(ended(talk, 1, away=True, problem=problem)) == [(1, False)]  # it may be locked
    assert story(talk)[-1] == f"its memory stays on the gpu: {problem}"
    assert not asked(ended(talk, 1, away=False))
    assert f"paused by a person, its memory stays on the gpu: {problem};" in summary(talk)
    assert talk.core.job(1).state is JobState.PAUSED
    assert not asked(talk.tick(after_ms=60_000))
    talk.resume(1)
    assert problem not in summary(talk)
    assert asked(talk.pause(1)) == [(1, True)]


def test_what_has_no_room_to_come_back_tries_until_it_has():
    talk = started()
    talk.pause(1)
    talk.rests(1)
    ended(talk, 1, away=True)
    talk.resume(1)

    for _ in range(2):
        assert not asked(ended(talk, 1, away=False, problem="no room"))
        assert talk.wake_at_ms == 250
        assert not asked(talk.tick(after_ms=249))
        assert asked(talk.tick(after_ms=1)) == [(1, False)]

    assert story(talk).count("it is still on the host: no room") == 1  # told only once
    assert summary(talk) == (
        "waits to come back to the gpu with 100 MiB of memory: no room; retried every 250 ms"
    )
    ended(talk, 1, away=False)
    assert "no room" not in summary(talk)
    assert talk.core.job(1).processes[1].usage.swapped_bytes == 0


def test_a_pause_that_ends_while_it_is_being_saved_brings_it_back_at_once():
    talk = started()
    talk.pause(1)
    talk.rests(1)

    assert not asked(talk.resume(1))

    assert asked(ended(talk, 1, away=True)) == [(1, False)]


def test_who_comes_back_waits_for_those_who_come_back_and_not_for_those_who_go():
    talk = many(MOST_RETURNS + 1 + MOST_SAVES + 1)
    back, away = range(1, MOST_RETURNS + 2), range(MOST_RETURNS + 2, len(talk.core.jobs) + 1)
    for job_id in back:
        talk.pause(job_id)
        ended(talk, job_id, away=True)
    for job_id in away:
        talk.pause(job_id)
    for job_id in back:
        talk.resume(job_id)

    told = f"the driver will bring it back to the gpu, after {MOST_RETURNS} other"
    assert told in summary(talk, back[-1])


def test_few_are_saved_at_a_time_and_nobody_who_comes_back_waits_for_them():
    talk = many(MOST_SAVES + 3)
    first, (other, last, latest) = 1, range(MOST_SAVES + 1, MOST_SAVES + 4)
    saving = [each for job_id in talk.core.jobs.copy() for each in asked(talk.pause(job_id))]
    assert saving == [(process_id, True) for process_id in range(first, other)]
    assert "the driver is saving it to the host;" in summary(talk, first)
    told = f"the driver will save it to the host, after {MOST_SAVES + 1} others;"
    assert told in summary(talk, last)

    assert not asked(talk.resume(other))  # it was never saved
    assert f"{MOST_SAVES} others;" in summary(talk, last)
    assert not asked(talk.resume(first))  # the driver is still saving it
    assert summary(talk, first) == (
        "the driver is saving it to the host, and will then bring it back"
    )
    assert asked(ended(talk, first, away=True)) == [(first, False), (last, True)]
    told = "the driver is bringing it back to the gpu with 100 MiB of memory"
    assert summary(talk, first) == told

    assert asked(talk.leave(2)) == [(latest, True)]  # while it was being saved


def test_as_many_come_back_at_a_time_as_there_are_threads_for():
    talk = Talk()
    count = MOST_RETURNS + 2
    found = []
    for job_id in range(1, count + 1):
        talk.register(job_id, checkpoint=True)
        found += asked(talk.attach(job_id, checkpoint=True))
    assert found == [(process_id, False) for process_id in range(1, MOST_RETURNS + 1)]

    assert asked(ended(talk, 5, away=False)) == [(count - 1, False)]
    talk.leave(count)  # from the line, where it waited
    assert not asked(ended(talk, 6, away=False))


def test_what_an_earlier_daemon_saved_stays_so_while_its_job_is_paused():
    talk = Talk()
    talk.register(1, checkpoint=True)
    talk.pause(1)

    assert asked(talk.attach(1, checkpoint=True)) == [(1, True)]
    talk.sample(1, device_bytes=100 * MIB)
    ended(talk, 1, away=True)
    assert talk.core.job(1).state is JobState.SWAPPED
    assert asked(talk.resume(1)) == [(1, False)]


def test_a_daemon_that_ends_brings_everybody_back_and_the_gone_are_forgotten():
    talk = started()
    assert not talk.core.checkpoints.leave()
    talk.pause(1)
    talk.rests(1)
    assert [*talk.core.checkpoints.leave()] == [1]  # its save is under way
    ended(talk, 1, away=True)
    assert [*talk.core.checkpoints.leave()] == [1]

    talk.leave(1)

    assert not talk.core.checkpoints.leave()
    assert not asked(ended(talk, 1, away=True))
