"""What the daemon's main thread takes for a signal."""

import signal
from types import SimpleNamespace

import pytest

from tandemd.__main__ import taken_signal

SIGNALS = {signal.SIGTERM, signal.SIGHUP}


@pytest.mark.parametrize(
    ("taken", "number"),
    [
        (None, None),
        (SimpleNamespace(si_signo=int(signal.SIGHUP)), signal.SIGHUP),
        # What CPython returns when SIGCONT ends a wait whose time is over: anything.
        (SimpleNamespace(si_signo=1107217392), None),
        (SimpleNamespace(si_signo=0), None),
    ],
)
def test_only_what_was_waited_for_is_a_signal(monkeypatch, taken, number):
    monkeypatch.setattr(signal, "sigtimedwait", lambda _signals, _timeout_s: taken)

    assert taken_signal(SIGNALS, 1.0) == number
