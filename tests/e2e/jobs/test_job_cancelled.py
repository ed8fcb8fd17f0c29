"""Jobs that are cancelled while held: a job that handles the signal gets what its handler needs."""

import signal

import pytest
from running_job import WAITING, until

# Reads what the job has computed, as a job does that saves its state, and ends.
SAVES = "__import__('signal').signal(15, lambda *_: (say(gpu.read(word)), os._exit(3))) or None"
IGNORES = "__import__('signal').signal(15, lambda *_: say('not yet')) or None"


def looping(place, *options, handler, call):
    """Start a job that makes the call for ever."""
    job = place.job("kept", *options)
    job.do(handler)
    job.go_on(call)
    return job


@pytest.mark.parametrize("option", ["--no-swappable", "--swappable"])
def test_a_paused_job_saves_what_it_has_and_ends(place, option):
    job = looping(place, option, handler=SAVES, call="lambda: gpu.read(word)")
    place.tandem("pause", "kept")
    with place.client() as client:
        state = "swapped" if option == "--swappable" else "paused"
        until(lambda: client.job("kept").state == state, what="it is held")
        until(lambda: WAITING in place.explain("kept"), what="its thread waits")

    place.tandem("cancel", "kept")

    assert job.result() == [7]
    assert job.end() == 3


def test_a_job_that_goes_on_is_killed_when_its_grace_is_over(place):
    job = looping(place, handler=IGNORES, call="compute")

    place.tandem("cancel", "--grace", "100ms", "kept")

    assert job.result() == "not yet"
    assert job.end() == -signal.SIGKILL
    with place.client() as client:
        until(lambda: client.jobs() == [], what="it is gone")
    until(lambda: place.used_bytes() == 0, what="its memory is free")
