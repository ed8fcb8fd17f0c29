"""Processes that compute on a GPU and belong to no job."""

import os
import subprocess

import pytest
from structlog.testing import capture_logs

from tandem import _mps
from tandemd.observers import strangers as of_strangers
from tandemd.observers.strangers import PATIENCE_S, Strangers, is_foreign


@pytest.fixture
def told(monkeypatch):
    """Every process is foreign; looks at who is on GPU 0 and returns what is logged."""
    monkeypatch.setattr(of_strangers, "is_foreign", lambda pid: True)
    strangers = Strangers()

    def look(pids, at_s, ours=()):
        running = None if pids is None else {0: frozenset(pids), 1: frozenset()}
        with capture_logs() as logs:
            strangers.look(running, ours, at_s)
        return [(line["gpu"], line["pid"]) for line in logs], strangers.on(0)

    return look


def test_a_process_that_stays_is_told_of_once_and_counted_while_it_is_there(told):
    assert told([], 0) == ([], 0)
    assert told([7], 1) == ([], 0)
    assert told([7], 1 + PATIENCE_S / 2) == ([], 0)
    assert told([7, 8], 1 + PATIENCE_S) == ([(0, 7)], 1)
    assert told([7, 8], 2 + 2 * PATIENCE_S) == ([(0, 8)], 2)
    assert told([8], 3 + 2 * PATIENCE_S) == ([], 1)


def test_who_attaches_meanwhile_is_none(told):
    told([7], 0)

    assert told([7], PATIENCE_S, ours=[7]) == ([], 0)


def test_where_the_driver_does_not_say_nothing_is_known(told):
    told([7], 0)
    told([7], PATIENCE_S)

    assert told(None, 2 * PATIENCE_S) == ([], None)
    assert told([7], 3 * PATIENCE_S) == ([], 1)  # it is not logged a second time


def test_a_pid_that_is_used_again_is_another_process(monkeypatch):
    verdicts, started = iter([False, True]), {7: 1.0}
    monkeypatch.setattr(of_strangers, "is_foreign", lambda pid: next(verdicts))
    monkeypatch.setattr(of_strangers, "start_time", started.get)
    strangers, there = Strangers(), {0: frozenset({7})}

    strangers.look(there, (), 0)
    strangers.look(there, (), PATIENCE_S)
    strangers.look(there, (), 2 * PATIENCE_S)  # not looked up again
    assert strangers.on(0) == 0
    started[7] = 2.0  # the pid was reused between two looks
    strangers.look(there, (), 3 * PATIENCE_S)

    assert strangers.on(0) == 1


def test_what_the_daemon_started_itself_is_none_and_nor_is_what_has_ended():
    with subprocess.Popen(["sleep", "60"]) as own:
        assert not is_foreign(own.pid)
        own.kill()
    assert not is_foreign(own.pid)
    assert is_foreign(os.getppid())


def test_a_part_of_mps_is_none(monkeypatch):
    monkeypatch.setattr(_mps, "is_running", lambda pid: True)

    assert not is_foreign(os.getppid())
