"""Listens for pauses of this process's job, with one thread for all listeners."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tandem import _marks
from tandem._pressure import tell

PERIOD_S = 0.1

Callback = Callable[[], object]


@dataclass(eq=False)
class Listener:
    """The callbacks to run before and after a pause."""

    before: list[Callback] = field(default_factory=list)
    after: list[Callback] = field(default_factory=list)


class PauseWatch:
    """Calls listeners in the order in which they were added, then reports ready. Thread-safe.

    Once the last listener is gone, the daemon no longer waits for the process. A forked child
    starts without listeners.
    """

    def __init__(self, *, period_s: float = PERIOD_S) -> None:
        """Poll every `period_s` seconds while there is a listener."""
        self._period_s = period_s
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._listeners: list[Listener] = []
        self._calling: Listener | None = None
        self._thread: threading.Thread | None = None

    def add(self, listener: Listener) -> None:
        """Add a listener."""
        self._leave_parent()
        with self._changed:
            self._listeners.append(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tandem-pause", daemon=True)
                self._thread.start()

    def remove(self, listener: Listener) -> None:
        """Remove a listener, and wait for its callback in progress unless that is the caller."""
        self._leave_parent()
        with self._changed:
            if listener not in self._listeners:
                return
            self._listeners.remove(listener)
            self._changed.notify_all()
            while self._calling is listener and threading.current_thread() is not self._thread:
                self._changed.wait()

    def _leave_parent(self) -> None:
        if self._pid != os.getpid():  # fork copies neither the thread nor its purpose
            self._begin()

    def _run(self) -> None:
        ready, is_told = 0, False
        try:
            while self._wait():
                number = _marks.pause_number(ready)
                if number and number != ready:
                    if is_told:  # that pause is over and another began since the last poll
                        self._call(lambda each: each.after)
                    self._call(lambda each: each.before)
                    # Poll once more at once, so that the daemon need not wait for the next period.
                    ready, is_told = number, True
                    _marks.pause_number(ready)
                elif number:
                    is_told = True  # the same pause again, after the daemon had hung
                elif is_told:
                    is_told = False
                    self._call(lambda each: each.after)
        finally:
            _marks.listen_no_more()

    def _wait(self) -> bool:
        """Wait for the next poll; False: no listener is left, and this thread has to end."""
        with self._changed:
            if self._listeners:
                self._changed.wait(self._period_s)
            if self._listeners:
                return True
            self._thread = None
            return False

    def _call(self, which: Callable[[Listener], list[Callback]]) -> None:
        with self._changed:
            wanted = [(one, callback) for one in self._listeners for callback in which(one)]
        for listener, callback in wanted:
            with self._changed:
                self._calling = listener if listener in self._listeners else None
            if self._calling is not None:
                _call(callback)
            with self._changed:
                self._calling = None
                self._changed.notify_all()


def _call(callback: Callback) -> None:
    try:
        callback()
    except BaseException as error:  # even SystemExit: the other callbacks still have to run
        tell(error)


WATCH = PauseWatch()
