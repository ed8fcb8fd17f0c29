"""Records which jobs have the turn, at each change while somebody records."""

from __future__ import annotations

from dataclasses import dataclass

from tandemd.core.scheduler import Scheduler
from tandemd.core.turns.rings import Ring

MOST = 100_000  # changes not yet taken; older ones are dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPassed:
    """From then on these jobs have the turn; empty: no job has work there."""

    at_ns: int
    ring: Ring
    job_ids: tuple[int, ...]


class TurnLog:
    """The changes since the last `take`. For the core's thread only."""

    def __init__(self) -> None:
        self._last: dict[Ring, tuple[int, ...]] = {}
        self._passed: list[TurnPassed] = []

    def look(self, scheduler: Scheduler, now_ns: int) -> None:
        """Look after each decision, so that no turn passes unseen between two of them."""
        found = {ring: _who(scheduler, ring) for ring in scheduler.rings.turns}
        for ring in self._last.keys() - found.keys():  # when jobs change, so do the rings
            found[ring] = ()
        for ring, job_ids in found.items():
            if self._last.get(ring, ()) != job_ids:
                self._passed.append(TurnPassed(at_ns=now_ns, ring=ring, job_ids=job_ids))
        self._last = {ring: job_ids for ring, job_ids in found.items() if job_ids}
        del self._passed[:-MOST]

    def take(self) -> list[TurnPassed]:
        """Return the changes in order of time."""
        taken, self._passed = self._passed, []
        return taken


def _who(scheduler: Scheduler, ring: Ring) -> tuple[int, ...]:
    turns = scheduler.rings.turns[ring]
    holders = (turns.holder, turns.companion, turns.third)
    groups = [scheduler.groups[key] for key in holders if key in scheduler.groups]
    return tuple(job_id for group in groups for job_id in group.jobs)
