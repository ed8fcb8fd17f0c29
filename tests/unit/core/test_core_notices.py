"""Programs that listen hear of a pause before their job is held."""

import pytest
from talk import BATCH, MS, Talk, run

from tandemd.core.events import AnnounceJob, CloseGates, JobCancelled, JobPaused, TellPause
from tandemd.core.explain.explain import explain, summarise
from tandemd.core.model import JobState, Notice
from tandemd.core.notices import AGAIN_NS, notice_of, paused_again

SECOND = 1000 * MS
HELD = CloseGates(process_ids=(1,))


@pytest.fixture
def talk():
    found = Talk()
    found.attach(1, BATCH)
    found.works(1)
    return found


def listen(talk, *process_ids):
    talk.sample(*process_ids, listens=True)


def pause(talk, grace_ms=30_000, job_id=1):
    told = JobPaused(now_ns=talk.now_ns, job_id=job_id, grace_ns=int(grace_ms * MS))
    talk.say(told)
    return [action for action in talk.actions if isinstance(action, TellPause)]


def kinds(talk):
    return [action.kind for action in talk.actions if isinstance(action, AnnounceJob)]


def test_a_job_that_nobody_listens_for_is_held_at_once(talk):
    assert pause(talk) == []

    assert talk.gates == [HELD]
    assert kinds(talk) == ["paused"]


def test_one_that_listens_is_held_once_it_is_ready(talk):
    listen(talk, 1)

    (told,) = pause(talk)

    assert told.process_id == 1
    assert talk.gates == []
    assert kinds(talk) == ["pausing"]
    talk.sample(1, after_ms=500, pause_ready=told.number)
    assert talk.gates == [HELD]
    assert talk.core.jobs[1].state is JobState.PAUSED


def test_one_that_is_never_ready_is_held_when_the_grace_is_over(talk):
    listen(talk, 1)
    pause(talk, grace_ms=200)
    assert talk.wake_at_ms == 200

    talk.tick(after_ms=199)
    assert talk.gates == []
    talk.tick(after_ms=1)

    assert talk.gates == [HELD]


def test_without_a_grace_nobody_is_told(talk):
    listen(talk, 1)

    assert pause(talk, grace_ms=0) == []

    assert talk.gates == [HELD]


def test_all_processes_of_a_job_that_listen_are_waited_for(talk):
    talk.attach(2, job_id=1)
    talk.attach(3, job_id=1)
    listen(talk, 1, 2)

    told = pause(talk)

    assert [each.process_id for each in told] == [1, 2]
    number = told[0].number
    talk.sample(1, pause_ready=number)
    assert talk.core.jobs[1].state is not JobState.PAUSED
    talk.sample(2, pause_ready=number)
    assert talk.core.jobs[1].state is JobState.PAUSED


@pytest.mark.parametrize("how", ["leaves", "listens no more"])
def test_one_that_goes_is_not_waited_for(talk, how):
    talk.attach(2, job_id=1)
    listen(talk, 2)
    pause(talk)

    talk.leave(2) if how == "leaves" else talk.sample(2, listens=False)

    assert talk.core.jobs[1].state is JobState.PAUSED


def test_ready_for_another_pause_is_not_ready(talk):
    listen(talk, 1)
    (told,) = pause(talk)

    talk.sample(1, pause_ready=told.number - 1)

    assert talk.core.jobs[1].state is not JobState.PAUSED


def test_a_pause_that_is_taken_back_holds_nobody_and_is_told(talk):
    listen(talk, 1)
    (told,) = pause(talk, grace_ms=100)

    talk.resume(1)

    assert TellPause(process_id=1, number=0) in talk.actions
    assert talk.core.jobs[1].notice is None
    talk.tick(after_ms=200)
    talk.sample(1, pause_ready=told.number)
    assert talk.core.jobs[1].state is JobState.RUNNING


def test_who_was_told_hears_of_the_end_of_the_pause(talk):
    listen(talk, 1)
    (told,) = pause(talk)
    talk.sample(1, pause_ready=told.number)

    talk.resume(1)

    assert TellPause(process_id=1, number=0) in talk.actions


def test_a_second_pause_may_only_shorten_the_grace(talk):
    listen(talk, 1)
    pause(talk, grace_ms=1000)

    assert pause(talk, grace_ms=5000) == []  # it already knows
    assert pause(talk, grace_ms=300) == []

    assert talk.core.jobs[1].notice.until_ns == talk.now_ns + 300 * MS
    pause(talk, grace_ms=0)
    assert talk.core.jobs[1].state is JobState.PAUSED


def test_the_next_pause_has_another_number(talk):
    listen(talk, 1)
    (first,) = pause(talk)
    talk.sample(1, pause_ready=first.number)
    talk.resume(1)

    (second,) = pause(talk)  # at the same time as the first

    assert 0 != second.number != first.number
    assert talk.core.jobs[1].state is not JobState.PAUSED


def test_a_cancel_takes_the_pause_back(talk):
    listen(talk, 1)
    pause(talk, grace_ms=100)

    talk.say(JobCancelled(now_ns=talk.now_ns, job_id=1, signal="TERM", grace_ns=SECOND))
    talk.tick(after_ms=200)

    assert talk.core.jobs[1].state is not JobState.PAUSED


def test_it_takes_its_turns_until_it_is_held(talk):
    talk.attach(2, BATCH)
    listen(talk, 1)
    pause(talk, grace_ms=500)

    got = run(talk, (1, 2), 400)

    assert got[1] == pytest.approx(got[2], rel=0.2)


def test_it_is_told_what_it_may_still_do(talk):
    listen(talk, 1)
    pause(talk)
    talk.tick(after_ms=2000)

    job = talk.core.jobs[1]
    assert (
        "before a pause, 1 program of it can prepare for it"
        in explain(talk.core, job, now_ns=talk.now_ns).lines
    )
    told = "is to be paused: 1 program can prepare for it, for at most 28 s more"
    assert explain(talk.core, job, now_ns=talk.now_ns).summary == told
    assert summarise(talk.core, job, talk.now_ns) == told
    assert any("1 program told, and held within 30 s" in line for _, line in job.story)


def test_who_begins_to_listen_within_the_grace_is_told_too(talk):
    talk.attach(2, job_id=1)
    listen(talk, 1)
    (first,) = pause(talk)

    listen(talk, 2)

    assert talk.of(TellPause) == [TellPause(process_id=2, number=first.number)]
    talk.sample(1, pause_ready=first.number)
    assert talk.core.jobs[1].state is not JobState.PAUSED


def test_who_was_told_and_listens_no_more_hears_of_the_end_as_well(talk):
    listen(talk, 1)
    pause(talk)
    talk.sample(1, listens=False)

    talk.resume(1)

    assert talk.of(TellPause) == [TellPause(process_id=1, number=0)]


@pytest.fixture
def pair(talk):
    """Two jobs of one group; the first listens."""
    talk = Talk()
    for number in (1, 2):
        talk.attach(number, BATCH, group="ranks")
    talk.works(1, 2)
    listen(talk, 1)
    return talk


@pytest.mark.parametrize("paused", [1, 2])
def test_where_one_job_of_a_group_is_paused_all_its_programs_are_told(pair, paused):
    (told,) = pause(pair, job_id=paused)

    assert told.process_id == 1
    assert pair.gates == []
    pair.sample(1, pause_ready=told.number)
    assert pair.gates == [CloseGates(process_ids=(1, 2))]


def test_a_group_whose_jobs_are_all_paused_is_held_once_all_are_ready(pair):
    listen(pair, 2)
    told = pause(pair, job_id=1)
    assert pause(pair, job_id=2) == []  # it already knows
    assert {each.number for each in told} == {told[0].number}

    pair.sample(1, pause_ready=told[0].number)
    assert pair.gates == []
    pair.sample(2, pause_ready=told[0].number)

    assert pair.gates == [CloseGates(process_ids=(1, 2))]
    assert {job.state for job in pair.core.jobs.values()} == {JobState.PAUSED}


def test_it_is_held_with_the_first_of_them(pair):
    pause(pair, job_id=1, grace_ms=100)
    pause(pair, job_id=2, grace_ms=10_000)

    pair.tick(after_ms=100)

    assert {job.state for job in pair.core.jobs.values()} == {JobState.PAUSED}


def test_its_programs_hear_of_the_end_when_all_go_on(pair):
    (told,) = pause(pair, job_id=1)
    pause(pair, job_id=2)
    pair.sample(1, pause_ready=told.number)

    pair.resume(1)
    assert pair.of(TellPause) == []
    pair.resume(2)

    assert pair.of(TellPause) == [TellPause(process_id=1, number=0)]


def back(talk, notice):
    """The job attaches to a new daemon, which knows this of the pause."""
    talk.say(paused_again(1, notice, talk.now_ns))
    return talk.of(TellPause)


def test_what_was_under_way_when_a_daemon_ended_goes_on_under_the_next(talk):
    notice = Notice(number=7, until_ns=talk.now_ns + 5 * SECOND)

    assert back(talk, notice) == []  # it has not yet said again that it listens
    talk.tick(after_ms=1000)
    assert talk.core.jobs[1].state is not JobState.PAUSED
    talk.sample(1, listens=True)
    assert talk.of(TellPause) == [TellPause(process_id=1, number=7)]
    talk.sample(1, pause_ready=7)

    assert talk.core.jobs[1].state is JobState.PAUSED


def test_one_that_does_not_come_back_is_held_when_its_grace_is_over(talk):
    back(talk, Notice(number=7, until_ns=talk.now_ns + 2 * SECOND))

    talk.tick(after_ms=1999)
    assert talk.core.jobs[1].state is not JobState.PAUSED
    talk.tick(after_ms=1)

    assert talk.core.jobs[1].state is JobState.PAUSED


def test_a_grace_that_was_over_meanwhile_is_over(talk):
    back(talk, Notice(number=7, until_ns=1))

    assert talk.core.jobs[1].state is JobState.PAUSED


def test_who_was_held_and_went_on_without_a_daemon_is_told_anew(talk):
    back(talk, Notice(number=7, until_ns=0))

    assert talk.core.jobs[1].notice.until_ns == talk.now_ns + AGAIN_NS
    talk.sample(1, listens=True)
    (told,) = talk.of(TellPause)
    assert told.number != 7


def test_one_of_which_nobody_was_told_is_held_at_once(talk):
    back(talk, None)

    assert talk.core.jobs[1].state is JobState.PAUSED


def test_what_the_next_daemon_has_to_know_is_kept_until_the_job_goes_on(talk):
    job = talk.core.jobs[1]
    listen(talk, 1)
    (told,) = pause(talk)
    assert notice_of(job) == job.notice
    talk.sample(1, pause_ready=told.number)
    assert notice_of(job) == Notice(number=told.number, until_ns=0)

    talk.resume(1)

    assert notice_of(job) is None


def test_programs_that_were_not_ready_in_time_are_counted_until_the_job_goes_on(talk):
    listen(talk, 1)
    pause(talk, grace_ms=100)
    talk.tick(after_ms=100)

    job = talk.core.jobs[1]
    assert job.unready == 1
    assert (
        "1 program did not get ready first" in explain(talk.core, job, now_ns=talk.now_ns).summary
    )
    talk.resume(1)
    assert job.unready == 0
