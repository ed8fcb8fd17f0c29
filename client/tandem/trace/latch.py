"""Waiting of one playing thread for another, so that virtual time notices nothing of it."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class Latch:
    """Opens once. Whoever waited takes part in time again before the opener goes on.

    Without that last rule the opener could block in the driver first, time would pass, and how much
    would be a matter of luck.
    """

    def __init__(self, outside: Callable[[], AbstractContextManager[None]]) -> None:
        """`outside` is what surrounds a wait that the driver does not see."""
        self._outside = outside
        self._changed = threading.Condition()
        self._is_open = False
        self._waiting = 0

    def wait(self) -> None:
        """Return once it is open."""
        with self._changed:
            if self._is_open:
                return
            self._waiting += 1
        with self._outside(), self._changed:
            self._changed.wait_for(lambda: self._is_open)
        with self._changed:
            self._waiting -= 1
            self._changed.notify_all()

    def open(self) -> None:
        """Let everybody go on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting == 0)
