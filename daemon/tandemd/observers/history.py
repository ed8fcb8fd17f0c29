"""What jobs held of each GPU's memory and SMs over the last minutes, and what they computed.

A job has a curve for each GPU that it uses. A point holds from its time on. One is added when the
memory changed, when the job begins to compute, and at least once a second while it computes. A
curve keeps only its newest points, so its size is bounded, and a quiet job's curve covers hours.

SM use is estimated from what was submitted: its predicted GPU time, times the SMs that kernels held
on average when an iteration was recorded (core/space/scaling.py). Without a recorded iteration it
counts as none.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tandemd.core.model import Job, Process
from tandemd.core.sums import MOST, total

STEP_NS = 100_000_000  # between two looks
WORK_NS = 1_000_000_000  # the most between two points of a job that computes
MOST_POINTS = 2000  # of a curve, which may temporarily have twice as many
_FIELDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a job held from `at_ns` on; bytes of one GPU."""

    at_ns: int
    resident_bytes: int
    swapped_bytes: int  # its memory on the host
    filed_bytes: int  # the part of these in files
    waiting_bytes: int  # what its allocations wait for
    gpu_ns: int  # GPU time since it began
    sm_ns: int = 0  # SMs that its kernels held, times the duration, since the first look

    @property
    def memory(self) -> tuple[int, int, int, int]:
        """Return the sizes, without the times."""
        return self.resident_bytes, self.swapped_bytes, self.filed_bytes, self.waiting_bytes


class Curve:
    """The newest points of a job on a GPU."""

    def __init__(self) -> None:
        self._values = array("q")
        self._newest: Point | None = None
        self._unsaid: Point | None = None  # seen since the newest point, and not kept

    def add(self, point: Point, *, unchanged_ns: int = 0) -> None:
        """Take in a look; times never go back.

        Up to `unchanged_ns` everything was as at the look before.
        """
        newest, unsaid = self._newest, self._unsaid
        if newest is None:
            self._append(point)
            return
        before = unsaid or newest
        has_rested = unchanged_ns > before.at_ns
        has_moved = point.memory != newest.memory
        is_late = point.at_ns - newest.at_ns >= WORK_NS
        if not has_moved and not (is_late and point.gpu_ns != newest.gpu_ns):
            self._unsaid = point
            return
        # Keep the skipped look: it shows what was done up to the change, and that nothing was
        # since.
        if unsaid and (has_moved or has_rested or unsaid.gpu_ns == newest.gpu_ns):
            self._append(unsaid)
        if has_rested:
            self._append(replace(before, at_ns=unchanged_ns))
        self._append(point)

    @property
    def newest(self) -> Point | None:
        """Return the present state; None before the first look."""
        return self._unsaid or self._newest

    def _append(self, point: Point) -> None:
        self._newest, self._unsaid = point, None
        self._values.extend((point.at_ns, *point.memory, point.gpu_ns, point.sm_ns))
        if len(self._values) >= 2 * MOST_POINTS * _FIELDS:
            del self._values[: MOST_POINTS * _FIELDS]

    def points(self) -> Iterator[Point]:
        """Yield the points, oldest first."""
        for at in range(0, len(self._values), _FIELDS):
            time_ns, resident, swapped, filed, waiting, gpu_ns, sm_ns = self._values[
                at : at + _FIELDS
            ]
            yield Point(
                at_ns=time_ns,
                resident_bytes=resident,
                swapped_bytes=swapped,
                filed_bytes=filed,
                waiting_bytes=waiting,
                gpu_ns=gpu_ns,
                sm_ns=sm_ns,
            )
        if self._unsaid is not None:
            yield self._unsaid


class Histories:
    """The curves of all jobs. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self.curves: dict[tuple[int, int], Curve] = {}  # by job and GPU
        self._looked_ns: int | None = None
        self._changed: set[int] = set()  # jobs changed since then
        self._members: dict[int, tuple[int, ...]] = {}  # each job's processes then
        self._work_ns: dict[int, int] = {}  # by process: what it had submitted then
        self._sm_ns: dict[tuple[int, int], float] = {}  # by job and GPU

    def is_due(self, now_ns: int) -> bool:
        """Tell whether it is time for `look`."""
        return self._looked_ns is None or now_ns - self._looked_ns >= STEP_NS

    def look(self, jobs: Mapping[int, Job], known: Iterable[int], now_ns: int) -> None:
        """Take in what the living jobs hold; jobs that are no longer `known` are forgotten.

        Only jobs with changes are looked at, because most are quiet.
        """
        kept, before_ns = set(known), self._looked_ns or 0
        self._looked_ns = now_ns
        self.curves = {key: curve for key, curve in self.curves.items() if key[0] in kept}
        self._sm_ns = {key: sm_ns for key, sm_ns in self._sm_ns.items() if key in self.curves}
        living = {process_id for job in jobs.values() for process_id in job.processes}
        for process_id in self._work_ns.keys() - living:
            del self._work_ns[process_id]
        members = {job_id: tuple(job.processes) for job_id, job in jobs.items()}
        left = (job_id for job_id, ids in self._members.items() if members.get(job_id) != ids)
        due = self._changed.union(left, members.keys() - self._members.keys())
        # Set first, so that a job that fails is not due again.
        self._members, self._changed = members, set()
        for job_id in due:
            self._take(job_id, jobs.get(job_id), before_ns, now_ns)

    def note(self, job_id: int) -> None:
        """Note that something of the job has changed since the last look."""
        self._changed.add(job_id)

    def _take(self, job_id: int, job: Job | None, before_ns: int, now_ns: int) -> None:
        processes: defaultdict[int, list[Process]] = defaultdict(list)
        for process in job.processes.values() if job else ():
            processes[process.gpu].append(process)
        for gpu, those in processes.items():
            curve = self.curves.setdefault((job_id, gpu), Curve())
            point = _point(those, now_ns, self._held_sm_ns((job_id, gpu), those))
            curve.add(point, unchanged_ns=before_ns)
        for (whose, gpu), curve in self.curves.items():
            if whose == job_id and gpu not in processes:
                self._end(curve, now_ns)

    def _held_sm_ns(self, key: tuple[int, int], processes: Iterable[Process]) -> int:
        """Return the SM time with what was submitted since the last look added."""
        for process in processes:
            work_ns = process.usage.work_ns
            more_ns = work_ns - self._work_ns.get(process.process_id, work_ns)
            self._work_ns[process.process_id] = work_ns
            held = process.scaling.held_sms if process.scaling else 0.0
            self._sm_ns[key] = self._sm_ns.get(key, 0.0) + max(0, more_ns) * held
        return min(int(self._sm_ns.get(key, 0.0)), MOST)

    def _end(self, curve: Curve, now_ns: int) -> None:
        newest = curve.newest
        if newest is not None and any(newest.memory):
            nothing = Point(
                at_ns=now_ns,
                resident_bytes=0,
                swapped_bytes=0,
                filed_bytes=0,
                waiting_bytes=0,
                gpu_ns=newest.gpu_ns,
                sm_ns=newest.sm_ns,
            )
            curve.add(nothing)


def _point(processes: list[Process], now_ns: int, sm_ns: int) -> Point:
    usages = [process.usage for process in processes]
    return Point(
        at_ns=now_ns,
        resident_bytes=total(usage.resident_bytes for usage in usages),
        swapped_bytes=total(usage.swapped_bytes for usage in usages),
        filed_bytes=total(usage.filed_bytes for usage in usages),
        waiting_bytes=total(u.memory_wait.size_bytes for u in usages if u.memory_wait),
        gpu_ns=total(usage.charged_ns for usage in usages),
        sm_ns=sm_ns,
    )
