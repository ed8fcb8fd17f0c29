import pytest
from talk import MS, Talk

from tandemd.core.errors import UnknownJobError
from tandemd.core.events import AnnounceJob, OpenGates, SignalJob
from tandemd.core.explain.explain import explain
from tandemd.core.model import Cancel, JobState

TERM, KILL = SignalJob(job_id=7, signal="TERM"), SignalJob(job_id=7, signal="KILL")
GRACE_MS = 30_000


@pytest.fixture
def talk():
    talk = Talk()
    talk.register(7)
    talk.attach(1, job_id=7)
    return talk


def summary(talk):
    return explain(talk.core, talk.core.jobs[7], talk.now_ns).summary


def test_a_job_gets_the_signal_at_once_and_sigkill_after_the_grace(talk):
    talk.cancel(7, grace_ms=GRACE_MS)
    assert talk.of(SignalJob) == [TERM]
    assert talk.wake_at_ms == GRACE_MS

    talk.tick(after_ms=GRACE_MS - 1)
    assert talk.of(SignalJob) == []
    talk.tick(after_ms=1)
    assert talk.of(SignalJob) == [KILL]
    talk.tick(after_ms=GRACE_MS)
    assert talk.of(SignalJob) == []


@pytest.mark.parametrize(("signal", "grace_ms"), [("TERM", 0), ("KILL", GRACE_MS)])
def test_without_a_grace_a_job_gets_sigkill_at_once_and_nothing_later(talk, signal, grace_ms):
    talk.cancel(7, signal=signal, grace_ms=grace_ms)
    assert talk.of(SignalJob) == [KILL]

    talk.tick(after_ms=GRACE_MS)
    assert talk.of(SignalJob) == []


def test_a_job_that_ends_within_its_grace_is_left_alone(talk):
    talk.cancel(7, grace_ms=GRACE_MS)
    talk.leave(1)
    talk.end(7)

    talk.tick(after_ms=GRACE_MS)

    assert talk.of(SignalJob) == []
    finished = talk.core.finished[7]
    assert explain(talk.core, finished, talk.now_ns).summary == "ended: it was cancelled"


def test_a_job_that_is_cancelled_again_has_its_grace_from_then_on(talk):
    talk.cancel(7, grace_ms=GRACE_MS)
    talk.tick(after_ms=10)

    talk.cancel(7, signal="INT", grace_ms=100)

    assert talk.of(SignalJob) == [SignalJob(job_id=7, signal="INT")]
    talk.tick(after_ms=100)
    assert talk.of(SignalJob) == [KILL]


def test_a_paused_job_is_signalled_and_then_goes_on(talk):
    talk.pause(7)

    talk.cancel(7, grace_ms=GRACE_MS)

    assert talk.core.jobs[7].state is JobState.IDLE
    assert talk.actions.index(TERM) < talk.actions.index(OpenGates(process_ids=(1,)))


def test_a_paused_job_does_not_go_on_to_be_killed(talk):
    talk.pause(7)

    talk.cancel(7, grace_ms=0)

    assert talk.core.jobs[7].state is JobState.PAUSED
    assert not talk.of(OpenGates)


def test_who_joins_a_job_is_sent_what_was_sent_last(talk):
    talk.cancel(7, grace_ms=GRACE_MS)
    talk.attach(2, job_id=7)
    assert talk.of(SignalJob) == [SignalJob(job_id=7, signal="TERM", process_id=2)]

    talk.tick(after_ms=GRACE_MS)
    talk.attach(3, job_id=7)
    assert talk.of(SignalJob) == [SignalJob(job_id=7, signal="KILL", process_id=3)]


def test_a_child_that_brings_the_job_back_within_its_grace_has_the_rest_of_it(talk):
    talk.cancel(7, grace_ms=GRACE_MS)
    talk.leave(1)
    talk.end(7)
    talk.tick(after_ms=GRACE_MS - 1)

    talk.attach(2, job_id=7)

    assert talk.of(SignalJob) == [SignalJob(job_id=7, signal="TERM", process_id=2)]
    talk.tick(after_ms=1)
    assert talk.of(SignalJob) == [KILL]


def test_who_has_the_number_of_a_job_whose_grace_is_over_is_left_alone(talk):
    talk.cancel(7, grace_ms=GRACE_MS)
    talk.leave(1)
    talk.end(7)
    talk.tick(after_ms=GRACE_MS)

    talk.attach(2, job_id=7)

    assert talk.of(SignalJob) == []
    assert talk.core.jobs[7].cancel is None


def test_people_are_told(talk):
    talk.cancel(7, grace_ms=GRACE_MS)
    assert talk.of(AnnounceJob) == [AnnounceJob(job_id=7, kind="cancelled")]
    talk.tick(after_ms=15_000)
    assert summary(talk) == "is being ended: SIGTERM was sent, SIGKILL follows in 15 s"

    talk.tick(after_ms=15_000)

    assert summary(talk) == "is being ended by SIGKILL"
    lines = [line for _, line in talk.core.jobs[7].story]
    assert lines[-2:] == [
        "cancelled: SIGTERM, and SIGKILL in 30 s",
        "still there after its grace period: SIGKILL",
    ]


def test_a_job_that_does_not_exist_cannot_be_cancelled(talk):
    with pytest.raises(UnknownJobError, match="j-8"):
        talk.cancel(8, grace_ms=MS)


def test_a_grace_that_another_daemon_began_ends_when_that_one_would_have_ended_it():
    talk = Talk()
    talk.attach(1, job_id=7, cancel=Cancel(signal="TERM", kill_at_ns=GRACE_MS * MS))

    assert talk.of(SignalJob) == [SignalJob(job_id=7, signal="TERM", process_id=1)]
    talk.tick(after_ms=GRACE_MS)
    assert talk.of(SignalJob) == [KILL]


def test_a_signal_that_only_another_version_knows_is_sent_to_nobody():
    talk = Talk()
    talk.attach(1, job_id=7, cancel=Cancel(signal="STOP", kill_at_ns=0))

    talk.tick(after_ms=GRACE_MS)

    assert talk.of(SignalJob) == []
    assert talk.core.jobs[7].cancel is None
