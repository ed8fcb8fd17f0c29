"""Tells the poller the SMs to charge each process for while several are busy (space/demands.py).

That number changes with sets, with what is recorded of a job, and with which processes exist:
seldom, and the poller is told only of changes. A process that came, was recorded or came onto a set
is checked at the next look; any other one at every tenth, so that a hundred processes delay nobody.
Until the poller is told of a process, time that it shares with others is split evenly.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from tandem import _native
from tandemd.core.model import Process, SmSet
from tandemd.core.scheduler import Scheduler
from tandemd.core.space.demands import demand_of
from tandemd.core.space.scaling import Curve

TURNS = 10  # looks in a cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the poller was told of one process, and the basis for it; 0 SMs: nothing."""

    sms: int = 0
    most_sms: int = 0
    scaling: Curve | None = None
    in_set: SmSet | None = None

    def is_old(self, process: Process) -> bool:
        """Tell whether the basis has changed since."""
        return self.scaling is not process.scaling or self.in_set != process.usage.in_set


@dataclass(slots=True)
class Demands:
    """The demands of all processes. Belongs to the loop's thread."""

    poller: _native.Poller
    _told: dict[int, _Told] = field(default_factory=dict)  # by process
    _turn: int = 0

    def look(self, core: Scheduler) -> None:
        """Tell the poller of processes whose demand has changed since the last look."""
        if not core.options.mps_gpus:
            self._withdraw()
            return
        for process_id in self._told.keys() - core.processes.keys():
            del self._told[process_id]
        self._turn = (self._turn + 1) % TURNS
        for process_id, process in core.processes.items():
            told = self._told.get(process_id)
            if told is None or told.is_old(process) or process_id % TURNS == self._turn:
                self._tell(process_id, told or _Told(), _found(core, process))

    def _withdraw(self) -> None:
        """Withdraw all demands: kernels of several processes no longer run side by side."""
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
    sms, most_sms = (demand.sms, demand.most_sms) if demand else (0, 0)
    in_set = process.usage.in_set
    return _Told(sms=sms, most_sms=most_sms, scaling=process.scaling, in_set=in_set)
