"""When the GPUs are asked for their energy, and what becomes of the answers.

Once a second, so that what is shared out (core/energy.py) is shared out among those of a second.
When a job has ended they are asked at once, for it waits for its last part. A thread asks, as NVML
takes its time; on the virtual clock the loop does itself, so that a run repeats.
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
    """What drivers have counted."""

    energy_mj: Mapping[int, int]  # by GPU; of who does not say it there is none
    at_ns: int


@dataclass(slots=True, kw_only=True)
class Energies:
    """Has them read. For the loop's thread, but `read`, which the worker's calls."""

    poller: _native.Poller
    clock: Clock
    worker: Worker
    core: Scheduler
    pasts: Pasts
    read: Callable[[], Mapping[int, int]] | None = None  # None: nobody can be asked
    _answers: deque[_Counted | None] = field(default_factory=deque)  # the worker's; None: failed
    _asked_ns: int | None = None
    _forgot_ns: int = 0
    _is_asked: bool = False
    _is_hurried: bool = False

    @property
    def has_news(self) -> bool:
        """Whether something was read that was not taken."""
        return bool(self._answers)

    def keep_past(self, job: PastJob) -> None:
        """A job has ended; what is still to come to it is asked for with the next look."""
        self._is_hurried |= self.pasts.keep(job)

    def look(self, now_ns: int) -> None:
        """Ask where that is due, and share out what was answered by now."""
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
        """Jobs that nobody knows any more, also while no answer comes."""
        if now_ns - self._forgot_ns < PERIOD_NS:
            return
        self._forgot_ns = now_ns
        known = {*self.core.jobs, *self.core.finished}
        self.core.energy.forget_but(known)
        self.pasts.forget_but(known)

    def _is_due(self, now_ns: int) -> bool:
        if self._is_asked:
            return False  # an answer that does not come is waited for once
        is_over = self._asked_ns is None or now_ns - self._asked_ns >= PERIOD_NS
        return is_over or self._is_hurried

    def _ask(self, read: Callable[[], Mapping[int, int]], now_ns: int) -> None:
        self._asked_ns, self._is_hurried = now_ns, False

        def answer() -> None:
            counted = None
            try:
                counted = _Counted(read(), self.clock.now_ns())
            finally:  # whatever happens, they can be asked again
                self._answers.append(counted)
                self.poller.wake()

        self.worker.do(answer)
        self._is_asked = True
