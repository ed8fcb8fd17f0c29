"""Listens for pauses of this process's job: one thread for all who want to hear of them."""

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
    """What somebody wants called before a pause, and behind it."""

    before: list[Callback] = field(default_factory=list)
    after: list[Callback] = field(default_factory=list)


class PauseWatch:
    """Calls listeners in the order in which they came, and says that all are ready. Thread-safe.

    The process is not waited for any more when the last of them goes. A forked child has none.
    """

    def __init__(self, *, period_s: float = PERIOD_S) -> None:
        """Look every `period_s` seconds while there is a listener."""
        self._period_s = period_s
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._listeners: list[Listener] = []
        self._calling: Listener | None = None
        self._thread: threading.Thread | None = None

    def add(self, listener: Listener) -> None:
        """Call it, too, from now on."""
        self._leave_parent()
        with self._changed:
            self._listeners.append(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tandem-pause", daemon=True)
                self._thread.start()

    def remove(self, listener: Listener) -> None:
        """Call it no more; a call that is under way ends first, unless it is what removes."""
        self._leave_parent()
        with self._changed:
            if listener not in self._listeners:
                return
            self._listeners.remove(listener)
            self._changed.notify_all()
            while self._calling is listener and threading.current_thread() is not self._thread:
                self._changed.wait()

    def _leave_parent(self) -> None:
        if self._pid != os.getpid():  # a child has neither the thread nor what it was there for
            self._begin()

    def _run(self) -> None:
        ready, is_told = 0, False
        try:
            while self._wait():
                number = _marks.pause_number(ready)
                if number and number != ready:
                    if is_told:  # over, and another began, since the last look
                        self._call(lambda each: each.after)
                    self._call(lambda each: each.before)
                    # The daemon hears at once that it need not wait.
                    ready, is_told = number, True
                    _marks.pause_number(ready)
                elif number:
                    is_told = True  # it is there again, behind a daemon that had hung
                elif is_told:
                    is_told = False
                    self._call(lambda each: each.after)
        finally:
            _marks.listen_no_more()

    def _wait(self) -> bool:
        """For the next look; False: nobody is there any more, and this thread is nobody's."""
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
    except BaseException as error:  # also of sys.exit: the others are to be called all the same
        tell(error)


WATCH = PauseWatch()
