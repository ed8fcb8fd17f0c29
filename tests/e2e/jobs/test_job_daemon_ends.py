"""What a job that waits at a closed gate sees when its daemon ends."""

import signal

import pytest
from running_job import WAITING, until


@pytest.fixture
def held(place):
    """A paused job with a thread that waits at the gate."""
    job = place.job("held")
    with place.client() as client:
        client.pause("held")
        job.start("compute()")
        until(lambda: WAITING in client.explain("held").lines, what="it waits at its gate")
    return job


@pytest.mark.parametrize("place", ["virtual", "real"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_is_asked_to_end_releases_everybody(place, held, number):
    assert place.stop_daemon(number) == 0

    assert held.result() == [15]
    assert held.end() == 0
    assert "Traceback" not in (place.folder / "log").read_text()


def test_a_killed_daemon_holds_nobody(place, held):
    place.stop_daemon(signal.SIGKILL)

    assert held.result() == [15]
    assert held.end() == 0


@pytest.mark.slow  # the device gives up a stopped program only after seconds of real time
def test_a_hung_daemon_holds_nobody(place, held):
    place.daemon.send_signal(signal.SIGSTOP)

    assert held.result() == [15]
    assert held.end() == 0


def test_a_restarted_daemon_takes_the_job_back_under_its_name(place, held):
    place.stop_daemon(signal.SIGKILL)
    assert held.result() == [15]

    place.start_daemon()

    with place.client() as client:
        until(
            lambda: [p.pid for j in client.jobs() for p in j.processes] == [held.pid],
            what="it attaches again",
        )
        assert [job.display_name for job in client.jobs()] == ["held"]
        held.start("compute()")
        until(lambda: WAITING in client.explain("held").lines, what="it is paused as it was")
        client.resume("held")
    assert held.result() == [31]
