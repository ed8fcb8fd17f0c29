"""Looks at every job periodically, and reports which findings begin and end.

It reads the scheduler and changes nothing. A finding begins when its rule holds in RAISE_LOOKS
looks in a row, and ends when the rule does not hold in CLEAR_LOOKS looks in a row, so that none
flaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tandemd.core.events import FindingBegan, FindingEnded
from tandemd.core.memory.memories import sharing
from tandemd.core.model import Group, Job
from tandemd.core.scheduler import Scheduler
from tandemd.core.watchdog.finding import Finding
from tandemd.core.watchdog.history import History
from tandemd.core.watchdog.look import look_at
from tandemd.core.watchdog.rivalry import Rivalry, rivalry_on
from tandemd.core.watchdog.rule import RULES, Rule

RAISE_LOOKS = 2
CLEAR_LOOKS = 3


def default_rules() -> dict[str, Rule]:
    """Return all rules with their default thresholds."""
    return {name: rule() for name, rule in RULES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Settings of the watchdog."""

    period_ns: int = 1_000_000_000
    rules: Mapping[str, Rule] = field(default_factory=default_rules)  # the rules that are on


@dataclass(slots=True)
class _Standing:
    """What a rule lately said of a job."""

    finding: Finding | None = None  # as reported to people
    against: int = 0  # looks in a row that contradict it


class Watchdog:
    """The watchdog over all jobs. Belongs to the thread that owns the scheduler."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch or Watch()
        self.capacity_bytes: Mapping[int, int] = {}  # GPU -> its memory, where known
        self._histories: dict[int, History] = {}
        self._standing: dict[int, dict[str, _Standing]] = {}
        self._looked_ns: int | None = None

    def change(self, watch: Watch) -> None:
        """Continue with other settings; findings of rules that are now off are dropped."""
        self.watch = watch
        self._histories.clear()
        for standing in self._standing.values():
            for name in standing.keys() - watch.rules.keys():
                del standing[name]

    def is_due(self, now_ns: int) -> bool:
        """Tell whether it is time to look."""
        if not self.watch.rules:
            return False
        return self._looked_ns is None or now_ns - self._looked_ns >= self.watch.period_ns

    def findings(self, job_id: int) -> tuple[Finding, ...]:
        """Return the findings that stand about a job, in the order of the rules' names."""
        standing = self._standing.get(job_id, {})
        return tuple(s.finding for _, s in sorted(standing.items()) if s.finding is not None)

    def look(self, scheduler: Scheduler, now_ns: int) -> list[FindingBegan | FindingEnded]:
        """Look at all jobs once; return what changed, for the scheduler."""
        self._looked_ns = now_ns
        changes: list[FindingBegan | FindingEnded] = []
        rooms = _rooms(scheduler, self.capacity_bytes)
        away = self._standing.keys() | self._histories.keys()
        for island in scheduler.rings.members.values():
            rivalry = rivalry_on(island, scheduler.policy, scheduler.options)
            for group in island:
                for job in group.jobs.values():
                    if job.processes:
                        away.discard(job.job_id)
                        history = self._look_at(job, group, rivalry, rooms, now_ns)
                        changes += self._judge(job.job_id, history, now_ns)
        for job_id in away:
            changes += self._forget(job_id, scheduler, now_ns)
        return changes

    def _look_at(
        self, job: Job, group: Group, rivalry: Rivalry, rooms: Mapping[int, int], now_ns: int
    ) -> History:
        """Add a look to the job's history, and return that."""
        history = self._histories.get(job.job_id)
        if history is None:
            span_ns = max(rule.span_ns for rule in self.watch.rules.values())
            history = self._histories[job.job_id] = History(span_ns=span_ns)
        seen = (group.paused, job.spec, *(process.usage for process in job.processes.values()))
        if seen == history.seen and history.last.is_idle:
            history.rest(now_ns)
            return history
        history.seen = seen
        room_bytes = rooms.get(min(process.gpu for process in job.processes.values()))
        before = history.last if history.looks else None
        look = look_at(job, group, rivalry, before=before, room_bytes=room_bytes, now_ns=now_ns)
        history.add(look)
        return history

    def _forget(
        self, job_id: int, scheduler: Scheduler, now_ns: int
    ) -> list[FindingBegan | FindingEnded]:
        """End the findings about a job that left the GPU; forget a job that has ended."""
        self._histories.pop(job_id, None)
        if job_id not in scheduler.jobs:
            self._standing.pop(job_id, None)
            return []
        return self._judge(job_id, None, now_ns)

    def _judge(
        self, job_id: int, history: History | None, now_ns: int
    ) -> list[FindingBegan | FindingEnded]:
        standing = self._standing.setdefault(job_id, {})
        at_rest = history is None or history.is_at_rest
        changes: list[FindingBegan | FindingEnded] = []
        for name, rule in self.watch.rules.items():
            known = standing.get(name)
            found = None
            if history is not None and not (at_rest and rule.span_ns):
                found = rule.find(history, standing=known is not None and known.finding is not None)
            if found is None and known is None:
                continue
            known = standing.setdefault(name, _Standing())
            changes += _weigh(job_id, known, found, now_ns)
            if known.finding is None and known.against == 0:
                del standing[name]
        return changes


def _rooms(scheduler: Scheduler, capacity_bytes: Mapping[int, int]) -> dict[int, int]:
    """Return what our jobs leave of each GPU of known capacity."""
    rooms = dict(capacity_bytes)
    for process in scheduler.processes.values():
        for gpu in sharing([process.gpu], rooms):
            rooms[gpu] = max(0, rooms[gpu] - process.usage.device_bytes)
    return rooms


def _weigh(
    job_id: int, known: _Standing, found: Finding | None, now_ns: int
) -> Iterator[FindingBegan | FindingEnded]:
    """Take in the verdict of one look."""
    if (found is None) == (known.finding is None):
        known.against = 0
        if found is not None and known.finding is not None:
            known.finding = replace(found, since_ns=known.finding.since_ns)
        return
    known.against += 1
    if found is not None and known.against >= RAISE_LOOKS:
        known.finding, known.against = found, 0
        yield FindingBegan(now_ns=now_ns, job_id=job_id, finding=found)
    elif known.finding is not None and known.against >= CLEAR_LOOKS:
        ended, known.finding, known.against = known.finding, None, 0
        yield FindingEnded(now_ns=now_ns, job_id=job_id, finding=ended)
