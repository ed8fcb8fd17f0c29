"""Asks NVML every few seconds what attached processes hold, and hands that to the core."""

from __future__ import annotations

import threading

from tandemd.core.events import MemoryAudited
from tandemd.edges.gpus import Inventory
from tandemd.loop import Loop
from tandemd.sessions import Sessions

PERIOD_S = 5.0


class Auditor:
    """Reads on a thread of its own: NVML may take milliseconds, which the core has not."""

    def __init__(self, *, loop: Loop, sessions: Sessions, inventory: Inventory) -> None:
        self._loop = loop
        self._sessions = sessions
        self._inventory = inventory
        self._stopping = threading.Event()

    def run(self) -> None:
        """Look until `stop`."""
        while not self._stopping.wait(PERIOD_S):
            self.look()

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
