"""Tells the poller what each process counts for where several are busy at once (space/demands.py).

What counts changes with sets, with what is recorded of a job, and with who is there: seldom, and
the poller is told of what is new. Of a process that came or was recorded it is told at the next
look; all others have their turn at every tenth, so that a hundred of them keep nobody waiting.
Until it was told of a process, what that shares with others is split evenly.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from tandem import _native
from tandemd.core.model import Process
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.demands import demand_of
from tandemd.core.space.scaling import Curve

TURNS = 10  # looks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the poller knows of one process, and by which record; 0 SMs: nothing."""

    sms: int = 0
    most_sms: int = 0
    scaling: Curve | None = None


@dataclass(slots=True)
class Demands:
    """Of all processes. Belongs to the loop's thread."""

    poller: _native.Poller
    _told: dict[int, _Told] = field(default_factory=dict)  # by process
    _turn: int = 0

    def look(self, core: Scheduler) -> None:
        """Tell the poller of those that count for something else than at the last look."""
        if not core.options.mps_gpus:
            self._withdraw()
            return
        for process_id in self._told.keys() - core.processes.keys():
            del self._told[process_id]
        self._turn = (self._turn + 1) % TURNS
        for process_id, process in core.processes.items():
            told = self._told.get(process_id)
            is_new = told is None or told.scaling is not process.scaling
            if is_new or process_id % TURNS == self._turn:
                self._tell(process_id, told or _Told(), _found(core, process))

    def _withdraw(self) -> None:
        """No kernels of several processes run side by side any more."""
        for process_id, told in self._told.items():
            self._tell(process_id, told, _Told())
        self._told = {}

    def _tell(self, process_id: int, before: _Told, now: _Told) -> None:
        self._told[process_id] = now
        if (before.sms, before.most_sms) != (now.sms, now.most_sms):
            with suppress(KeyError):  # it has left
                self.poller.weigh(process_id=process_id, sms=now.sms, most_sms=now.most_sms)


def _found(core: Scheduler, process: Process) -> _Told:
    job = core.jobs[process.job_id]
    demand = demand_of(process, job, core.groups[job.group_key], core.options)
    if demand is None:
        return _Told(scaling=process.scaling)
    return _Told(sms=demand.sms, most_sms=demand.most_sms, scaling=process.scaling)
