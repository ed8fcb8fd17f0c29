"""Tells every process its set of SMs: the set where its job is placed (sets.py).

Rules
1. The set of a job is decided when jobs come, go or ask for another size.
2. A process is told its new set once nobody else is in it. Whoever has to leave is told first, and
   reports when nothing of it runs any more where it was. Until then the process gets only the part
   of its new set that it already has. A process that has no work to finish leaves at once.
3. A process that comes before sets are proved to work is told to use the whole GPU: only a process
   that was told something at the start can get a set later. One that came while no sets were
   expected never gets one. A process from a former daemon keeps its set, also while proofs get no
   answer, until sets are proved or proved not to exist. Meanwhile the daemon assumes that it has
   the whole GPU.
4. Nobody waits longer than `drain_ns` for others to leave. A process that has just come does not
   wait at all, because it has to run somewhere. So kernels of two jobs may share SMs for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tandemd.core.events import SetSms
from tandemd.core.model import Job, JobSpec, Options, Process, SmSet, Split
from tandemd.core.space.sets import Span, place

WHOLE = SmSet(0, 0, 1)
MOST_TURNS = 2**32 - 1  # a word of the command page


@dataclass(slots=True)
class _Seat:
    """What one process was told."""

    gpu: int
    told: SmSet
    turn: int  # number of that telling
    # By turn: earlier sets where it may still have work, because it has not reported leaving them.
    before: dict[int, SmSet] = field(default_factory=dict)
    waits_since_ns: int | None = None  # for others to leave the set it is to get


def groups_asked(spec: JobSpec, split: Split) -> int:
    """Return how many groups `--sm` comes to on that GPU; 0 = the job does not ask."""
    if spec.sm_count:
        return min(split.groups, -(-spec.sm_count // split.group_sms))
    if spec.sm_percent:
        return max(1, min(split.groups, round(spec.sm_percent * split.groups / 100)))
    return 0


def _seat_of(job: Job) -> tuple[int, int]:
    """Return what the job's place depends on."""
    return job.part, job.groups_wanted


def _name_of(job: Job) -> str:
    """Return a name that jobs share if they share groups: those of one part and equal size."""
    return f"{job.part}:{job.groups_wanted}" if job.part else str(job.job_id)


class SetPlaces:
    """Decides places of jobs, and tells processes. Belongs to the scheduler."""

    def __init__(self) -> None:
        self.wake_at_ns: int | None = None
        self._seats: dict[int, _Seat] = {}  # by process
        self._kept: set[int] = set()  # processes that may be in sets of a former daemon
        self._turn = 0  # number of the newest telling
        self._key: object = None  # input of the last decision
        self._spans: dict[int, dict[int, Span]] = {}  # GPU -> job -> where it is to be

    @property
    def is_used(self) -> bool:
        """True if some process was told a set."""
        return bool(self._seats or self._kept)

    def take_back(self, process_id: int) -> None:
        """Note that a former daemon may have told it a set, which it keeps until told another."""
        self._kept.add(process_id)

    def forget(self, process_id: int) -> None:
        """Drop a process that is gone."""
        self._seats.pop(process_id, None)
        self._kept.discard(process_id)

    def decide(
        self,
        processes: Mapping[int, Process],
        jobs: Mapping[int, Job],
        options: Options,
        now_ns: int,
    ) -> list[SetSms]:
        """Return what processes are to be told now."""
        key = (
            options.splits,
            options.proving,
            options.retried,
            [(p.process_id, p.gpu, *_seat_of(jobs[p.job_id])) for p in processes.values()],
        )
        if key == self._key and self.wake_at_ns is None:
            return []  # nobody came, went, waits or asks for another size
        self._key, self.wake_at_ns = key, None
        for job in jobs.values():
            job.set = None
        self._spans = {gpu: self._spans.get(gpu, {}) for gpu in options.splits}
        actions: list[SetSms] = []
        for gpu, split in sorted(options.splits.items()):
            here = [p for p in processes.values() if p.gpu == gpu and not p.has_no_set]
            self._place(gpu, split, here, jobs)
            actions += self._seat(gpu, split, here, options, now_ns)
        actions += self._expect(processes, options)
        return actions + list(self._dissolve(processes, options))

    def _place(
        self, gpu: int, split: Split, here: Iterable[Process], jobs: Mapping[int, Job]
    ) -> None:
        asking = sorted({p.job_id for p in here}, key=lambda job_id: jobs[job_id].arrival)
        names = {job_id: _name_of(jobs[job_id]) for job_id in asking}
        wanted: dict[str, int] = {}
        held: dict[str, Span] = {}
        for job_id, name in names.items():
            wanted.setdefault(name, jobs[job_id].groups_wanted)
            if (span := self._spans.get(gpu, {}).get(job_id)) is not None:
                held.setdefault(name, span)
        found = place(wanted, held, split.groups)
        self._spans[gpu] = {job_id: found[name] for job_id, name in names.items()}
        for job_id, span in self._spans[gpu].items():
            jobs[job_id].set = jobs[job_id].set or span

    def _seat(
        self, gpu: int, split: Split, here: list[Process], options: Options, now_ns: int
    ) -> Iterator[SetSms]:
        spans = self._spans[gpu]
        occupied = {p.process_id: list(self._occupied(p)) for p in here}
        for process in here:
            target = spans[process.job_id]
            seat = self._seats.get(process.process_id)
            # Jobs that share what is left are not in each other's way.
            others = [
                span
                for other in here
                if spans[other.job_id] != target
                for span in occupied[other.process_id]
            ]
            span = self._next(process, seat, target, others, options, now_ns)
            told = SmSet(span.first, span.count, split.group_sms)
            if seat is None:
                yield self._take_seat(process, told)
            elif seat.told != told:
                # What it gives up counts as its own until it reports that it has left.
                seat.before = {turn: set for turn, set in seat.before.items() if set != told}
                seat.before[seat.turn] = seat.told
                seat.told, seat.turn = told, self._next_turn()
                yield SetSms(process_id=process.process_id, set=told, turn=seat.turn)
            else:
                continue
            occupied[process.process_id].append(span)

    def _next(
        self,
        process: Process,
        seat: _Seat | None,
        target: Span,
        others: list[Span],
        options: Options,
        now_ns: int,
    ) -> Span:
        """Return where the process is to be now, on its way to `target`."""
        if seat is None:
            return target
        told = Span(seat.told.first, seat.told.count) if seat.told.count else target
        is_free = not any(other.overlap(target) for other in others)
        if is_free or told == target:
            seat.waits_since_ns = None
            return target
        if seat.waits_since_ns is None:
            seat.waits_since_ns = now_ns
        until_ns = seat.waits_since_ns + options.drain_ns
        if now_ns >= until_ns:
            seat.waits_since_ns = None  # its next wait counts anew
            return target
        self.wake_at_ns = min(until_ns, self.wake_at_ns or until_ns)
        first, end = max(told.first, target.first), min(told.end, target.end)
        return Span(first, end - first) if end > first else told

    def _occupied(self, process: Process) -> Iterator[Span]:
        """Yield where it may have work, now or soon."""
        seat, usage = self._seats.get(process.process_id), process.usage
        if seat is None:
            return
        # A shim that does not say which telling it follows is judged by the set it reports.
        if usage.in_turn == seat.turn or (not usage.in_turn and usage.in_set == seat.told):
            seat.before.clear()
        elif usage.in_turn in seat.before:
            turns = list(seat.before)
            for turn in turns[: turns.index(usage.in_turn)]:
                del seat.before[turn]
        is_in = [usage.in_set] if usage.in_set else []
        for found in {seat.told, *seat.before.values(), *is_in}:
            if found.count:
                yield Span(found.first, found.count)

    def _take_seat(self, process: Process, told: SmSet) -> SetSms:
        self._kept.discard(process.process_id)
        turn = self._next_turn()
        self._seats[process.process_id] = _Seat(process.gpu, told, turn)
        return SetSms(process_id=process.process_id, set=told, turn=turn)

    def _next_turn(self) -> int:
        self._turn = self._turn % MOST_TURNS + 1
        return self._turn

    def _expect(self, processes: Mapping[int, Process], options: Options) -> Iterator[SetSms]:
        for process in processes.values():
            is_in = process.process_id in self._seats or process.process_id in self._kept
            if process.gpu in options.may_have_sets and not (is_in or process.has_no_set):
                yield self._take_seat(process, WHOLE)

    def _dissolve(self, processes: Mapping[int, Process], options: Options) -> Iterator[SetSms]:
        """Give the whole GPU to processes whose GPU has no sets any more."""
        expected = options.splits.keys() | options.may_have_sets
        for process_id, seat in list(self._seats.items()):
            if seat.gpu in expected or process_id not in processes:
                continue
            del self._seats[process_id]
            whole = SmSet(0, 0, seat.told.group_sms)
            yield SetSms(process_id=process_id, set=whole, turn=self._next_turn())
        for process_id in sorted(self._kept):
            if processes[process_id].gpu not in expected:
                self._kept.discard(process_id)
                yield SetSms(process_id=process_id, set=WHOLE, turn=self._next_turn())
