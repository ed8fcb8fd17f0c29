"""A program is told that its memory is wanted."""

import threading

import pytest

import tandem
from tandem import _marks, _pressure

DEADLINE_S = 30


class Wanted:
    """The shim's answers, look by look; after the last one nothing is wanted."""

    def __init__(self, *looks):
        self._looks = list(looks)
        self.seen = threading.Event()  # all answers were given

    def __call__(self):
        if self._looks:
            return self._looks.pop(0)
        self.seen.set()
        return False


def calls_with(monkeypatch, *looks):
    """Return how often the program is called while the shim gives these answers."""
    calls = []
    wanted = Wanted(*looks)
    monkeypatch.setattr(_marks, "memory_is_wanted", wanted)
    with tandem.on_memory_pressure(lambda: calls.append(True), period_s=0.001):
        assert wanted.seen.wait(DEADLINE_S)
    return len(calls)


def test_it_is_called_when_memory_begins_to_be_wanted(monkeypatch):
    assert calls_with(monkeypatch, False, True, True, False, True) == 2


def test_it_is_called_again_while_memory_is_wanted_but_not_at_every_look(monkeypatch):
    assert calls_with(monkeypatch, *[True] * (2 * _pressure.AGAIN_PERIODS + 1)) == 3


def test_a_callback_that_fails_is_called_again_and_told_of_once(monkeypatch):
    calls, told = [], []
    wanted = Wanted(True, False, True, False, True)
    monkeypatch.setattr(_marks, "memory_is_wanted", wanted)
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))

    def fail():
        calls.append(True)
        raise RuntimeError

    with tandem.on_memory_pressure(fail, period_s=0.001):
        assert wanted.seen.wait(DEADLINE_S)

    assert (len(calls), told) == (3, [RuntimeError])


def test_nobody_is_called_outside_the_shim():
    assert _marks.memory_is_wanted() is False


def test_the_callback_may_close_its_own_watch(monkeypatch):
    monkeypatch.setattr(_marks, "memory_is_wanted", lambda: True)
    closed, known = threading.Event(), threading.Event()

    def close():
        assert known.wait(DEADLINE_S)
        watch.close()
        closed.set()

    watch = tandem.on_memory_pressure(close, period_s=0.001)
    known.set()

    assert closed.wait(DEADLINE_S)


def test_a_period_that_is_none_is_refused():
    with pytest.raises(ValueError, match="period_s must be positive, not 0"):
        tandem.on_memory_pressure(print, period_s=0)
