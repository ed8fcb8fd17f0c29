"""Reads the GPUs' energy counters, and passes the readings on.

It reads once a second, so that energy is shared out (core/energy.py) among the jobs of that second.
When a job has ended it reads at once, because the job waits for its last part. A thread reads,
because NVML takes its time; on the virtual clock the loop itself does, so that a run is
reproducible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tandem import _native
from tandemd.core.past import PastJob
from tandemd.core.scheduler import Scheduler
from tandemd.edges.clock import Clock
from tandemd.edges.worker import Worker
from tandemd.pasts import Pasts

PERIOD_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Counted:
    """One reading of the drivers' counters."""

    energy_mj: Mapping[int, int]  # by GPU; those without a counter are missing
    at_ns: int


@dataclass(slots=True, kw_only=True)
class Energies:
    """Schedules the readings. For the loop's thread, except `read`, which the worker's calls."""

    poller: _native.Poller
    clock: Clock
    worker: Worker
    core: Scheduler
    pasts: Pasts
    read: Callable[[], Mapping[int, int]] | None = None  # None: there is nothing to read
    _answers: deque[_Counted | None] = field(default_factory=deque)  # from the worker; None: failed
    _asked_ns: int | None = None
    _forgot_ns: int = 0
    _is_asked: bool = False
    _is_hurried: bool = False

    @property
    def has_news(self) -> bool:
        """Tell whether there is a reading not yet taken in."""
        return bool(self._answers)

    def keep_past(self, job: PastJob) -> None:
        """Keep a job that has ended; if energy is still due to it, the next look reads at once."""
        self._is_hurried |= self.pasts.keep(job)

    def look(self, now_ns: int) -> None:
        """Request a reading when due, and share out those that have come."""
        if self.read is not None and self._is_due(now_ns):
            self._ask(self.read, now_ns)
        while self._answers:
            self._is_asked = False
            if (counted := self._answers.popleft()) is not None:
                self._take(counted)
        self._forget(now_ns)

    def _take(self, counted: _Counted) -> None:
        self.core.energy.read(counted.energy_mj, counted.at_ns)
        self.pasts.complete()

    def _forget(self, now_ns: int) -> None:
        """Forget jobs that the core no longer knows, even while no answer comes."""
        if now_ns - self._forgot_ns < PERIOD_NS:
            return
        self._forgot_ns = now_ns
        known = {*self.core.jobs, *self.core.finished}
        self.core.energy.forget_but(known)
        self.pasts.forget_but(known)

    def _is_due(self, now_ns: int) -> bool:
        if self._is_asked:
            return False  # at most one reading is pending, even if it never comes
        is_over = self._asked_ns is None or now_ns - self._asked_ns >= PERIOD_NS
        return is_over or self._is_hurried

    def _ask(self, read: Callable[[], Mapping[int, int]], now_ns: int) -> None:
        self._asked_ns, self._is_hurried = now_ns, False

        def answer() -> None:
            counted = None
            try:
                counted = _Counted(read(), self.clock.now_ns())
            finally:  # in any case, so that the next reading can be requested
                self._answers.append(counted)
                self.poller.wake()

        self.worker.do(answer)
        self._is_asked = True
