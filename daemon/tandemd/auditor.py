"""Asks NVML now and then what attached processes hold, and hands that to the core.

More often while somebody is new: what a context takes is not known before, and where memory is
shared out to the last piece, jobs wait for what is not there.
"""

from __future__ import annotations

import threading

from tandemd.core.events import MemoryAudited
from tandemd.edges.gpus import Inventory
from tandemd.loop import Loop
from tandemd.sessions import Sessions

PERIOD_S = 5.0
EARLY_S = 0.2  # while somebody is new
EARLY_LOOKS = 5  # a process attaches just before it makes its context


class Auditor:
    """Reads on a thread of its own: NVML may take milliseconds, which the core has not."""

    def __init__(self, *, loop: Loop, sessions: Sessions, inventory: Inventory) -> None:
        self._loop = loop
        self._sessions = sessions
        self._inventory = inventory
        self._stopping = threading.Event()
        self._seen: frozenset[int] = frozenset()
        self._early_left = 0
        self._waited_s = 0.0

    def run(self) -> None:
        """Look until `stop`."""
        while not self._stopping.wait(EARLY_S):
            if self.is_due():
                self.look()

    def is_due(self) -> bool:
        """Whether to look, asked every EARLY_S."""
        self._waited_s += EARLY_S
        attached = frozenset(self._sessions.info)
        if attached - self._seen:
            self._early_left = EARLY_LOOKS
        self._seen = attached
        if not self._early_left and self._waited_s < PERIOD_S:
            return False
        self._early_left = max(0, self._early_left - 1)
        self._waited_s = 0.0
        return True

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def look(self) -> None:
        """Look once, if anybody is attached; the core takes it in on its own thread."""
        if not self._sessions.info:  # the loop's, but this only asks whether there is any
            return
        held = self._inventory.held_bytes()
        if not held:
            return

        def tell() -> None:
            known = tuple(
                (process_id, held[info.pid])
                for process_id, info in self._sessions.info.items()
                if info.pid in held
            )
            if known:
                self._loop.handle(MemoryAudited(now_ns=self._loop.clock.now_ns(), held_bytes=known))

        self._loop.post(tell)
