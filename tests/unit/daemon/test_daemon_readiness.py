"""Whether the daemon reports itself ready, which health depends on (test_daemon_rpc_calls.py)."""

from types import SimpleNamespace

import pytest

from tandemd.config.config import Config
from tandemd.daemon import FRESH_S, Daemon

SECOND = 1_000_000_000


@pytest.fixture
def daemon(monkeypatch):
    """A running daemon, as far as readiness needs one; its last round was at second 100."""
    found = Daemon(config=Config(), directory=None, soft_clock=False)
    found._core = SimpleNamespace(is_alive=lambda: True)
    found._loop = SimpleNamespace(
        clock=SimpleNamespace(is_virtual=False), last_round_ns=100 * SECOND
    )
    found._auditor = SimpleNamespace(is_answered=True)
    found.now_s = 100
    monkeypatch.setattr("tandemd.daemon.time.monotonic_ns", lambda: int(found.now_s * SECOND))
    return found


def test_it_is_ready_while_its_loop_comes_round(daemon):
    assert daemon.is_ready()

    daemon.now_s += FRESH_S
    assert not daemon.is_ready()

    daemon._loop.last_round_ns = daemon.now_s * SECOND
    assert daemon.is_ready()


def test_and_while_nvml_answers_where_anybody_asks(daemon):
    daemon._auditor.is_answered = False
    assert not daemon.is_ready()

    daemon._auditor.is_answered = True
    assert daemon.is_ready()

    daemon._auditor = None
    assert daemon.is_ready()


def test_and_while_the_threads_live_that_it_needs(daemon):
    daemon.failure = OSError()
    assert not daemon.is_ready()


def test_where_time_is_virtual_it_may_stand_still(daemon):
    daemon._loop.clock.is_virtual = True
    daemon.now_s += 10 * FRESH_S

    assert daemon.is_ready()
