"""Polls NVML for what attached processes hold, and passes that to the core.

It polls more often while a process is new: what its context takes is not known before, and where
memory is shared out to the last piece, jobs would wait for memory that is not there.
"""

from __future__ import annotations

import threading
import time

import structlog

from tandemd.core.events import MemoryAudited
from tandemd.edges.gpus import Holdings, Inventory
from tandemd.loop import Loop
from tandemd.sessions import Sessions

PERIOD_S = 5.0
EARLY_S = 0.1  # while a process is new
# A process attaches just before it creates its context; two looks at that are needed.
EARLY_LOOKS = 10
STUCK_S = 10.0  # a query of NVML that takes longer is taken for hung

log = structlog.get_logger(__name__)


class Auditor:
    """Polls on a thread of its own: NVML may take milliseconds, which the core cannot spare."""

    def __init__(self, *, loop: Loop, sessions: Sessions, inventory: Inventory) -> None:
        self._loop = loop
        self._sessions = sessions
        self._inventory = inventory
        self._stopping = threading.Event()
        self._came = threading.Event()  # a newcomer, or the request to stop
        self._early_left = 0
        self._asked_s: float | None = None  # since when it waits for an answer
        self._failure = ""

    @property
    def is_answered(self) -> bool:
        """Tell whether NVML answered the last query, or still may. Any thread."""
        asked_s = self._asked_s
        is_stuck = asked_s is not None and time.monotonic() - asked_s > STUCK_S
        return not is_stuck and not self._failure

    def run(self) -> None:
        """Look until `stop` is called."""
        while not self._stopping.is_set():
            self.look()
            rest_s = self.rest_s()
            (self._came if rest_s == PERIOD_S else self._stopping).wait(rest_s)

    def rest_s(self) -> float:
        """Return the time until the next look."""
        if self._came.is_set():
            self._came.clear()
            self._early_left = EARLY_LOOKS
        if not self._early_left:
            return PERIOD_S
        self._early_left -= 1
        return EARLY_S

    def newcomer(self) -> None:
        """Note that a process has attached. Any thread."""
        self._came.set()

    def stop(self) -> None:
        """End `run`. Any thread."""
        self._stopping.set()
        self._came.set()

    def look(self) -> None:
        """Look once; the core takes the result in on its own thread."""
        # Claims are read before and after, and the larger one counts, because a process claims
        # memory before it asks the driver, and reports a release after it.
        before = self._loop.poller.memory_claims()
        found = self._holdings()
        after = self._loop.poller.memory_claims()
        held, is_complete = found.by_pid, found.is_complete

        def tell() -> None:
            attached = {key: info.pid for key, info in self._sessions.info.items()}
            # If the driver names none of them, it does not report per-process use, as in a
            # container. If it names some and its figures are complete, the others hold nothing.
            names_none = held.keys().isdisjoint(attached.values())
            says_nothing = bool(attached) and names_none
            pids = frozenset(attached.values())
            running = None if says_nothing else found.running
            self._loop.strangers.look(running, pids, time.monotonic())
            if names_none:
                return
            by_process = {key: held.get(pid, ()) for key, pid in attached.items()}
            known = tuple((k, sizes) for k, sizes in by_process.items() if sizes or is_complete)
            now_ns = self._loop.clock.now_ns()
            event = MemoryAudited(
                now_ns=now_ns,
                held_bytes=known,
                is_complete=is_complete,
                claims={key: _most(claim, before.get(key, claim)) for key, claim in after.items()},
            )
            self._loop.handle(event)

        self._loop.post(tell)

    def _holdings(self) -> Holdings:
        self._asked_s = time.monotonic()
        found = self._inventory.holdings()
        self._asked_s = None
        if found.failure and not self._failure:
            log.error(
                "nvml failed, continuing with what is known of the jobs", reason=found.failure
            )
        elif self._failure and not found.failure:
            log.info("nvml answers again")
        self._failure = found.failure
        return found


def _most(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])
