"""Limits how many may do something at once, in all and per uid: no user can take all places."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tandem.errors import CapacityError


class Places:
    """A counter of places in use. For any thread."""

    def __init__(self, most: int, most_per_uid: int, what: str) -> None:
        """`what` is what they do, as a verb."""
        self._most, self._most_per_uid, self._what = most, most_per_uid, what
        self._lock = threading.Lock()
        self._taken: Counter[int] = Counter()

    @contextmanager
    def take(self, uid: int) -> Iterator[None]:
        """Hold a place while the context is open.

        Raises:
            CapacityError: there is none, or none for this uid.
        """
        with self._lock:
            if self._taken[uid] >= self._most_per_uid:
                self._refuse(self._most_per_uid, f" of uid {uid}")
            if self._taken.total() >= self._most:
                self._refuse(self._most)
            self._taken[uid] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[uid] -= 1
                if not self._taken[uid]:
                    del self._taken[uid]

    def _refuse(self, most: int, whose: str = "") -> NoReturn:
        clients = "1 client" if most == 1 else f"{most} clients"
        raise CapacityError(
            f"no more than {clients}{whose} may {self._what} at once; try again later",
            reason="TOO_MANY_CALLS",
        )
