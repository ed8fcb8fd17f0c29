"""Lets one playing thread wait for another without an effect on virtual time."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class Latch:
    """Opens once. The opener continues only after all waiters count in virtual time again.

    Otherwise the opener might block in the driver first, and virtual time would pass by an amount
    that depends on luck.
    """

    def __init__(self, outside: Callable[[], AbstractContextManager[None]]) -> None:
        """`outside` makes the context manager for waits that the driver does not see."""
        self._outside = outside
        self._changed = threading.Condition()
        self._is_open = False
        self._waiting = 0

    def wait(self) -> None:
        """Return once the latch is open."""
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
        """Open the latch and let all waiters continue."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting == 0)
