"""A silent stream is ended once the daemon stops answering, and not before."""

import threading

import pytest

from tandem._heartbeat import Heartbeat
from tandem.errors import CapacityError, DeadlineError, UnavailableError


class Stream:
    """A stream that ends when it is cancelled, or when a test says so."""

    def __init__(self, *, is_over=False):
        self.is_cancelled = threading.Event()
        self.end = lambda: None
        self._is_over = is_over

    def add_callback(self, callback):
        self.end = callback
        return not self._is_over

    def cancel(self):
        self.end()
        self.is_cancelled.set()
        return True


class Daemon:
    """Answers with, or raises, one item per call; signals when the last one is taken."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.was_asked = threading.Event()

    def __call__(self):
        answer = self.answers.pop(0)
        if not self.answers:
            self.was_asked.set()
        if answer is not None:
            raise answer


def no_threads_but(before):
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("failure", [DeadlineError("slow"), UnavailableError("slow")])
def test_a_stream_ends_once_nobody_answers(failure):
    before, stream = set(threading.enumerate()), Stream()

    heartbeat = Heartbeat(stream, Daemon(None, CapacityError("busy"), failure), every_s=0.001)

    assert stream.is_cancelled.wait(20)
    assert (type(heartbeat.failure), str(heartbeat.failure)) == (UnavailableError, "slow")
    no_threads_but(before)


def test_nobody_is_asked_once_the_stream_has_ended():
    before, stream = set(threading.enumerate()), Stream()
    daemon = Daemon(None)

    heartbeat = Heartbeat(stream, daemon, every_s=3600)
    stream.end()

    no_threads_but(before)
    assert (heartbeat.failure, daemon.was_asked.is_set()) == (None, False)


def test_of_a_stream_that_is_over_nobody_is_asked():
    before = set(threading.enumerate())

    Heartbeat(Stream(is_over=True), Daemon(), every_s=0.001)

    assert set(threading.enumerate()) <= before  # threads of other tests may end
