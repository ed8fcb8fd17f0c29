"""A process whose iterations begin when its memory curve fits: how far it is, and what it needs.

Progress is that of its submissions: memory is taken when the host asks for it. Where it matters how
far the GPU is, what is still open there is taken off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tandemd.core.curves.curves import Curve, flat
from tandemd.core.curves.laps import Laps, progress_in
from tandemd.core.curves.leases import Claim
from tandemd.core.model import NO_LIMIT, Group, Job, Options, Process
from tandemd.core.turns.companions import unfit

LATE = 1.05  # an iteration that is so much longer than the recorded one is another kind


@dataclass(slots=True, kw_only=True)
class Tenant:
    """One process, and what it was told."""

    process: Process
    job: Job
    group: Group
    marks: bool = False  # its iterations itself
    ends: int = 0  # of iterations: as marked, or, of one that marks none, by its laps
    laps: Laps = field(default_factory=Laps)
    end_bytes: int | None = None  # what it held when the newest of them was known
    is_low: bool = True  # that was no more than an iteration before
    ends_allowed: int = 0  # at so many it is stopped, or, if it marks them, stops itself; 0 = never
    steps_told: int = 0  # the same, to its shim
    gave_way: bool = False  # another went on since it could not end: it is the first that ends
    kept_since_ns: int | None = None  # it stands at the beginning of an iteration
    grown_ns: int = 0  # when its peak was last higher than before
    peak_bytes: int = 0
    reason: str = ""  # why it does not begin, for people

    @property
    def held_bytes(self) -> int:
        """Of the GPU, by its own count."""
        return self.process.usage.device_bytes

    @property
    def is_within(self) -> bool:
        """In the middle of an iteration, or allowed to begin one."""
        if not self.ends_allowed:
            return True
        return (self.process.usage.stopped if self.marks else self.ends) < self.ends_allowed

    @property
    def stands(self) -> bool:
        """At the beginning of an iteration, with something to submit or to allocate.

        One that marks none does not stop by itself: it has begun the next when its end is found.
        """
        usage = self.process.usage
        waits = usage.waiting_threads > 0 or usage.memory_wait is not None
        return not self.is_within and (waits or not self.marks)

    @property
    def wants_memory(self) -> int:
        """What it waits for, because its lease is used up; bytes."""
        process, wait = self.process, self.process.usage.memory_wait
        is_lent = process.lease_bytes <= process.room_bytes  # else that of all jobs is used up
        return wait.size_bytes if wait is not None and wait.is_quota and is_lent else 0

    @property
    def will_give_back(self) -> bool:
        """On its way through an iteration it holds less, somewhere, than now: it stands high.

        One that is stopped in the middle of an iteration and was not recorded yet may.
        """
        curve = self.process.curve
        return not self.marks if curve is None else min(curve.held_bytes) < self.held_bytes

    def keep(self, now_ns: int, reason: str) -> None:
        """It does not begin, for this reason."""
        self.reason = reason
        if self.kept_since_ns is None:
            self.kept_since_ns = now_ns

    def kept_ns(self, now_ns: int) -> int:
        """For how long it could not begin so far."""
        return 0 if self.kept_since_ns is None else now_ns - self.kept_since_ns

    def begin(self) -> None:
        """It may do one more iteration."""
        self.ends_allowed = self.ends + 1
        self.kept_since_ns, self.reason = None, ""

    def watch(self, now_ns: int, options: Options) -> None:
        """Take in how its memory grows, and which iterations have ended."""
        usage = self.process.usage
        if usage.steps and not self.marks:  # from now on only these count
            self.marks, self.ends_allowed = True, min(self.ends_allowed, usage.steps)
        if self.marks:
            ends = usage.steps
        else:
            found = usage.iterations if options.find_iterations else 0
            ends = self.ends + self.laps.has_ended_one(found, self._progress_ns, self.process.curve)
        if ends != self.ends:
            self._end(ends)
        peak_bytes = max(self.process.usage.peak_bytes, self.held_bytes)
        if peak_bytes > self.peak_bytes or not self.grown_ns:
            self.peak_bytes, self.grown_ns = peak_bytes, now_ns

    def _end(self, ends: int) -> None:
        # The first end that is found, by iterations that are alike, is found late: well within the
        # next iteration. Those after it are known by how that begins.
        before_bytes, self.end_bytes = self.end_bytes, self.held_bytes
        self.is_low = self.marks or (before_bytes is not None and self.held_bytes <= before_bytes)
        self.ends, self.gave_way = ends, False

    def is_quiet(self, now_ns: int, options: Options) -> bool:
        """It has submitted nothing for so long that nobody waits for its progress."""
        return now_ns - self.group.last_wanted_ns >= options.memory_quiet_ns

    def is_new(self, now_ns: int, options: Options) -> bool:
        """What it needs cannot be said yet: no iteration has ended, and it grew not long ago."""
        if self.ends:
            return False
        return now_ns - self.grown_ns < options.memory_quiet_ns or self.wants_memory > 0

    @property
    def most_bytes(self) -> int:
        """What an iteration needs at most, as far as one was seen."""
        curve = self.process.curve
        return self.peak_bytes if curve is None else max(curve.peak_bytes, self.held_bytes)

    @property
    def submitted_ns(self) -> int:
        """Of this iteration's work: what its host has handed over.

        One that marks its iterations stands before the next; any other has begun it.
        """
        if self.marks:
            return self._progress_ns if self.is_within else 0
        curve = self.process.curve
        return self._progress_ns if curve is None else progress_in(curve, self._progress_ns)

    @property
    def _progress_ns(self) -> int:
        """What was handed over since an end was marked, or found."""
        usage = self.process.usage
        return max(0, usage.work_ns - usage.step_work_ns)

    @property
    def _recorded(self) -> Curve | None:
        """Of an iteration, from where it begins; None: there is none, or this one is another."""
        curve = self.process.curve
        if curve is None or self.is_late:
            return None
        return curve if self.marks else curve.from_low()

    def done_ns(self, options: Options) -> int:
        """Of this iteration's work: what its GPU has done for sure."""
        open_ns = self.process.usage.open_segments * options.segment_ns
        return max(0, self.submitted_ns - open_ns)

    def curve(self, options: Options) -> Curve:
        """With its host ahead of its GPU by what its window allows."""
        curve = self._recorded
        if curve is None:
            return flat(self.most_bytes)
        return curve.ahead(options.window_segments * options.segment_ns)

    @property
    def is_late(self) -> bool:
        """This iteration is not like the recorded one."""
        curve = self.process.curve
        done_ns = self.submitted_ns if self.marks else self._progress_ns
        return curve is not None and done_ns > LATE * curve.length_ns

    def claim(self, now_ns: int, options: Options) -> Claim:
        """On memory, until its iteration ends; those of whom nothing is known first come first.

        One that gave way goes before: the other would take all that it gives back once more.
        """
        if self.is_new(now_ns, options):
            return Claim(more_bytes=None, left_ns=self.group.arrival)
        curve, at_ns = self._recorded, self.submitted_ns
        if curve is None:
            needed_bytes, left_ns, freed_bytes = self.most_bytes, NO_LIMIT, None
        else:
            needed_bytes, left_ns = curve.most_from(at_ns), max(0, curve.length_ns - at_ns)
            freed_bytes = self.held_bytes - curve.rest_bytes
        needed_bytes = max(needed_bytes, self.held_bytes + self.wants_memory)
        left_ns = 0 if self.gave_way else left_ns
        return Claim(
            more_bytes=needed_bytes - self.held_bytes, left_ns=left_ns, freed_bytes=freed_bytes
        )


def objection(group: Group, options: Options) -> str | None:
    """Why memory curves do not say when a group's iterations begin; None: they do."""
    against = (
        *unfit(group, options, followed="memory of one only is"),
        # Where residency.py moves memory with turns, and this, would meet.
        (any(job.spec.swappable for job in group.jobs.values()), "its memory moves with its turns"),
        (group.paused, "it is paused"),
    )
    return next((why for is_so, why in against if is_so), None)
