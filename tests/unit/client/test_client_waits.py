"""Waiting for a job that the daemon has already forgotten."""

import pytest

from tandem import _convert
from tandem._waits import arrivals
from tandem._wire import tandem_pb2 as pb
from tandem.errors import NotFoundError, StateError

JOB = _convert.job(pb.Job(name="j-1", status=pb.JobStatus(state=pb.STATE_RUNNING)))


class Forgetful:
    """A client of a daemon that keeps no ended jobs."""

    def watch(self, *, deadline_s):
        assert deadline_s is None
        yield from ()

    def job(self, name):
        raise NotFoundError(f"no job is named '{name}'")


def test_who_was_known_and_is_forgotten_has_ended():
    (ended,) = arrivals(Forgetful(), [JOB])

    assert (ended.name, ended.state) == ("j-1", "exited")
    with pytest.raises(StateError, match="j-1 has ended, and will not be paused"):
        next(arrivals(Forgetful(), [JOB], until="paused"))


def test_who_was_never_known_is_not_there():
    with pytest.raises(NotFoundError, match="no job is named 'j-1'"):
        next(arrivals(Forgetful(), ["j-1"]))
