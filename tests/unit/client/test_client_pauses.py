"""One thread listens for all blocks of a process; a fake shim plays the daemon."""

import os
import threading

import pytest

from tandem import _marks
from tandem._pauses import Listener, PauseWatch

DEADLINE_S = 30


class Shim:
    """Scripted answers to looks; the last one is repeated until the listener ends."""

    def __init__(self, *numbers):
        self._numbers = list(numbers)
        self.ready = []
        self.ended = threading.Event()
        self.is_read = threading.Event()

    def look(self, ready):
        self.ready.append(ready)
        if len(self._numbers) > 1:
            return self._numbers.pop(0)
        self.is_read.set()
        return self._numbers[0]


@pytest.fixture
def heard():
    return []


@pytest.fixture
def watch():
    return PauseWatch(period_s=0.001)


@pytest.fixture
def listen(watch, heard, monkeypatch):
    def listen(*numbers, **callbacks):
        """Listens until the script has ended."""
        shim = Shim(*numbers)
        monkeypatch.setattr(_marks, "pause_number", shim.look)
        monkeypatch.setattr(_marks, "listen_no_more", shim.ended.set)
        listener = Listener(
            before=[lambda: heard.append("before")], after=[lambda: heard.append("after")]
        )
        watch.add(listener)
        assert shim.is_read.wait(DEADLINE_S)
        watch.remove(listener)
        assert shim.ended.wait(DEADLINE_S)
        return shim

    return listen


def test_it_calls_before_and_behind_a_pause_and_says_that_it_is_ready(listen, heard):
    shim = listen(0, 7, 7, 7, 0, 0)

    assert heard == ["before", "after"]
    assert shim.ready[:4] == [0, 0, 7, 7]


def test_a_pause_that_is_there_again_behind_a_daemon_that_had_hung_is_no_new_one(listen, heard):
    listen(7, 7, 0, 7, 7, 0, 0)

    assert heard == ["before", "after", "after"]


def test_the_next_pause_is_a_new_one(listen, heard):
    listen(7, 7, 0, 8, 8, 0, 0)

    assert heard == ["before", "after"] * 2


def test_one_that_is_over_before_another_begins_is_so_also_between_two_looks(listen, heard):
    listen(7, 7, 8, 8, 0, 0)

    assert heard == ["before", "after"] * 2


def test_all_listeners_are_called_before_the_process_is_ready(watch, heard, monkeypatch):
    shim, told = Shim(7, 7), []  # the second look reports that the process is ready
    monkeypatch.setattr(_marks, "listen_no_more", shim.ended.set)
    both = [Listener(before=[lambda n=n: heard.append(n)]) for n in (1, 2)]

    def look(ready):
        if ready:
            told.append(list(heard))
        return shim.look(ready) if len(watch._listeners) == 2 else 0

    monkeypatch.setattr(_marks, "pause_number", look)
    for listener in both:
        watch.add(listener)
    assert shim.is_read.wait(DEADLINE_S)
    for listener in both:
        watch.remove(listener)

    assert shim.ended.wait(DEADLINE_S)
    assert told[0] == [1, 2]


def test_a_callback_may_end_the_listening(watch, monkeypatch):
    shim = Shim(7)
    monkeypatch.setattr(_marks, "pause_number", shim.look)
    monkeypatch.setattr(_marks, "listen_no_more", shim.ended.set)
    listener = Listener()
    listener.before.append(lambda: watch.remove(listener))

    watch.add(listener)

    assert shim.ended.wait(DEADLINE_S)


def test_who_removes_a_listener_waits_for_its_callback(watch, heard, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(_marks, "pause_number", lambda ready: 7)
    monkeypatch.setattr(_marks, "listen_no_more", lambda: None)

    def call():
        began.set()
        assert go_on.wait(DEADLINE_S)
        heard.append("done")

    listener = Listener(before=[call])
    watch.add(listener)
    assert began.wait(DEADLINE_S)
    removing = threading.Thread(target=lambda: (watch.remove(listener), heard.append("removed")))
    removing.start()
    go_on.set()
    removing.join(DEADLINE_S)

    assert heard == ["done", "removed"]


def test_a_forked_child_begins_with_none(watch, monkeypatch):
    monkeypatch.setattr(_marks, "pause_number", lambda ready: 0)
    ended = threading.Event()
    monkeypatch.setattr(_marks, "listen_no_more", ended.set)
    parents = Listener()
    watch.add(parents)

    child = os.fork()
    if child == 0:
        watch.remove(parents)  # the parent's listener is not one of the child's
        called = threading.Event()
        monkeypatch.setattr(_marks, "pause_number", lambda ready: 7)
        watch.add(Listener(before=[called.set]))
        os._exit(0 if called.wait(DEADLINE_S) and len(watch._listeners) == 1 else 1)
    _, status = os.waitpid(child, 0)
    watch.remove(parents)

    assert status == 0
    assert ended.wait(DEADLINE_S)
